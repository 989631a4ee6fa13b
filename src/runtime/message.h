// Message: bytes with an owner, moved from rank to rank.
//
// On the threads transport the owner itself is handed over and no byte is copied; a transport
// between processes sends the bytes and frees the owner. Threads: one thread at a time.
#pragma once

#include <cstddef>
#include <utility>

namespace penstock {

class Message {
 public:
  using Release = void (*)(void* owner);

  Message() = default;
  // `data` stays readable for `bytes` until release(owner) is called, once.
  Message(void* data, std::size_t bytes, void* owner, Release release)
      : data_(data), bytes_(bytes), owner_(owner), release_(release) {}
  Message(Message&& other) noexcept { Swap(other); }
  Message& operator=(Message&& other) noexcept {
    Message taken(std::move(other));
    Swap(taken);
    return *this;
  }
  ~Message() {
    if (release_ != nullptr) release_(owner_);
  }

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  bool empty() const { return release_ == nullptr; }
  // Identifies what the owner is: a stage that made the message with its own `release` may take the
  // owner back instead of copying the bytes.
  Release release() const { return release_; }
  // Gives the owner up to the caller, without releasing it; the message is empty after.
  void* TakeOwner() {
    release_ = nullptr;
    return std::exchange(owner_, nullptr);
  }

 private:
  void Swap(Message& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(owner_, other.owner_);
    std::swap(release_, other.release_);
  }

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  void* owner_ = nullptr;
  Release release_ = nullptr;
};

}  // namespace penstock
