#include "train/c10d/frame_stores.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>

#include "base/byte_stream.h"
#include "base/index.h"

namespace penstock {
// Each of the two processes has all of the store, and sends its changes to the other one.
class FrameStore final : public c10d::HashStore {
 public:
  using Value = std::vector<std::uint8_t>;

  explicit FrameStore(int other) : other_(other) {}

  // The channel is null once it is closed.
  void Connect(Channel* channel) { channel_ = channel; }

  // Applies a change of the other process.
  void Apply(std::int32_t change, std::string_view bytes) {
    ByteReader reader(bytes);
    const std::string key = reader.GetText();
    switch (change) {
      case kSet:
        return HashStore::set(key, reader.GetAll<std::uint8_t>());
      case kAppend:
        return HashStore::append(key, reader.GetAll<std::uint8_t>());
      case kAdd:
        HashStore::add(key, reader.Get<std::int64_t>());
        return;
      default:
        HashStore::deleteKey(key);
    }
  }

  using HashStore::compareSet;
  using HashStore::set;
  void set(const std::string& key, const Value& value) override {
    HashStore::set(key, value);
    Send(kSet, key, [&](ByteWriter& writer) { writer.PutAll(std::span(value)); });
  }
  void multiSet(const std::vector<std::string>& keys, const std::vector<Value>& values) override {
    for (std::size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
  }
  Value compareSet(const std::string& key, const Value& expected, const Value& desired) override {
    Value now = HashStore::compareSet(key, expected, desired);
    if (now == desired) {
      Send(kSet, key, [&](ByteWriter& writer) { writer.PutAll(std::span(desired)); });
    }
    return now;
  }
  void append(const std::string& key, const Value& value) override {
    HashStore::append(key, value);
    Send(kAppend, key, [&](ByteWriter& writer) { writer.PutAll(std::span(value)); });
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    const std::int64_t sum = HashStore::add(key, value);
    Send(kAdd, key, [&](ByteWriter& writer) { writer.Put(value); });
    return sum;
  }
  bool deleteKey(const std::string& key) override {
    Send(kDelete, key, [](ByteWriter&) {});
    return HashStore::deleteKey(key);
  }

  Value get(const std::string& key) override {
    wait({key}, getTimeout());
    return HashStore::get(key);
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!check(keys)) {
      const Channel* const channel = channel_;
      TORCH_CHECK(channel != nullptr && !channel->group().aborted(), "the run has ended");
      TORCH_CHECK(std::chrono::steady_clock::now() < deadline, "no answer of the other process");
      std::this_thread::sleep_for(kLook);
    }
  }

 private:
  static constexpr std::chrono::milliseconds kLook{2};

  // Changes of a store, as the kinds of frames.
  enum Change : std::int32_t { kSet, kAppend, kAdd, kDelete };

  template <class Put>
  void Send(Change change, const std::string& key, const Put& put) {
    Channel* const channel = channel_;
    if (channel == nullptr) return;
    ByteWriter writer;
    writer.PutText(key);
    put(writer);
    channel->Send(other_, {change}, CopyToMessage(writer.Take()));
  }

  const int other_;
  std::atomic<Channel*> channel_ = nullptr;
};

FrameStores::FrameStores(ProcessGroup& processes)
    : stores_(Index(processes.processes())), channel_(std::make_unique<Channel>(processes)) {
  for (int other = 0; other < processes.processes(); ++other) {
    if (other == processes.process()) continue;
    stores_[Index(other)] = c10::make_intrusive<FrameStore>(other);
    stores_[Index(other)]->Connect(channel_.get());
  }
  channel_->Open(
      [this](int from, const FrameTag& tag, Message message) {
        stores_[Index(from)]->Apply(tag.kind,
                                    {static_cast<const char*>(message.data()), message.bytes()});
      },
      [](const Error&) {});
}

FrameStores::~FrameStores() {
  for (const auto& store : stores_) {
    if (store != nullptr) store->Connect(nullptr);
  }
}

c10::intrusive_ptr<c10d::Store> FrameStores::With(int process) const {
  return stores_[Index(process)];
}

}  // namespace penstock
