// Message: bytes with an owner, moved from rank to rank.
//
// A transport between threads hands over the owner itself and copies no byte. A transport between
// processes sends the bytes and releases the owner; the receiver gets what Packed returns. All
// information of a message is therefore in its bytes, and receivers must accept two forms: the
// sender's own (release() identifies it) and the packed one. Threads: one thread at a time.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

namespace penstock {

// Contiguous bytes, for example a tensor's.
struct MessagePart {
  void* data = nullptr;
  std::size_t bytes = 0;
};

class Message {
 public:
  using Release = void (*)(void* owner);
  // Returns the parts of an owner in memory of the host.
  using ToHost = Message (*)(void* owner);

  Message() = default;
  // A message of one part. `data` must stay readable for `bytes` until release(owner) is called,
  // exactly once.
  Message(void* data, std::size_t bytes, void* owner, Release release)
      : part_{data, bytes}, owner_(owner), release_(release) {}
  // A message of several parts, or none. `parts` itself must stay valid until then, too.
  // `to_host` is given if the host cannot read them.
  Message(std::span<const MessagePart> parts, void* owner, Release release,
          ToHost to_host = nullptr)
      : parts_(parts), owner_(owner), release_(release), to_host_(to_host) {}
  Message(Message&& other) noexcept { Swap(other); }
  Message& operator=(Message&& other) noexcept {
    Message taken(std::move(other));
    Swap(taken);
    return *this;
  }
  ~Message() {
    if (release_ != nullptr) release_(owner_);
  }

  // Requires: the message has one part.
  void* data() const { return part_.data; }
  std::span<const MessagePart> parts() const {
    return part_.data == nullptr ? parts_ : std::span(&part_, 1);
  }
  // The number of bytes that Pack writes.
  std::size_t bytes() const {
    std::size_t end = 0;
    for (const MessagePart& part : parts()) end = Align(end) + part.bytes;
    return end;
  }
  // Writes the parts one after another, each at the next multiple of kAlign. This is the format
  // between processes.
  void Pack(std::byte* to) const {
    std::size_t end = 0;
    for (const MessagePart& part : parts()) {
      if (part.bytes > 0) std::memcpy(to + Align(end), part.data, part.bytes);
      end = Align(end) + part.bytes;
    }
  }
  static constexpr std::size_t kAlign = 64;  // bytes: a cache line, enough for any vector load
  static constexpr std::size_t Align(std::size_t at) { return (at + kAlign - 1) / kAlign * kAlign; }

  // Returns the message with its bytes in memory of the host, which another process gets.
  Message OnHost() && { return to_host_ == nullptr ? std::move(*this) : to_host_(owner_); }

  bool empty() const { return release_ == nullptr; }
  // Identifies the type of the owner: a stage that created the message with its own `release` may
  // take the owner back instead of copying the bytes.
  Release release() const { return release_; }
  // Requires: not empty. For those who know the owner by release().
  void* owner() const { return owner_; }
  // Transfers the owner to the caller without releasing it. The message is empty afterwards.
  void* TakeOwner() {
    release_ = nullptr;
    return std::exchange(owner_, nullptr);
  }

 private:
  void Swap(Message& other) noexcept {
    std::swap(part_, other.part_);
    std::swap(parts_, other.parts_);
    std::swap(owner_, other.owner_);
    std::swap(release_, other.release_);
    std::swap(to_host_, other.to_host_);
  }

  MessagePart part_;
  std::span<const MessagePart> parts_;
  void* owner_ = nullptr;
  Release release_ = nullptr;
  ToHost to_host_ = nullptr;
};

// A message of one part with `bytes` bytes of its own, aligned to Message::kAlign and not
// initialized.
Message AllocateMessage(std::size_t bytes);
// The message as it arrives from another process: its bytes as Pack writes them, in one part.
Message Packed(const Message& message);
// A message that holds a copy of the text, and the text of a message of at most one part.
Message CopyToMessage(std::string_view text);
std::string_view TextOf(const Message& message);

}  // namespace penstock
