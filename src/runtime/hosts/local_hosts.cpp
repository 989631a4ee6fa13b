#include "runtime/hosts/local_hosts.h"

#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

namespace penstock {
namespace {

struct LocalFrame {
  int from = 0;
  bool gone = false;  // the sender is; nothing else counts
  std::int64_t channel = 0;
  FrameTag tag;
  Message message;
};

// What is on its way to one host.
class Inbox {
 public:
  void Push(LocalFrame frame) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (closed_) return;
      frames_.push_back(std::move(frame));
    }
    changed_.notify_one();
  }
  // Waits; false once it is closed.
  bool Pop(LocalFrame& frame) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !frames_.empty(); });
    if (closed_) return false;
    frame = std::move(frames_.front());
    frames_.pop_front();
    return true;
  }
  void Close() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    changed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<LocalFrame> frames_;  // guarded by mutex_
  bool closed_ = false;            // guarded by mutex_
};

using Inboxes = std::vector<Inbox>;  // by host

class LocalHost final : public HostGroup {
 public:
  LocalHost(int host, std::shared_ptr<Inboxes> inboxes)
      : HostGroup(host, static_cast<int>(inboxes->size())),
        inboxes_(std::move(inboxes)),
        thread_([this] { DeliverAll(); }) {}

  ~LocalHost() override {
    Own().Close();
    thread_.join();
    for (int to = 0; to < hosts(); ++to) {
      if (to != host()) InboxOf(to).Push({host(), true, 0, {}, {}});
    }
  }

 private:
  void SendFrame(int to, std::int64_t channel, const FrameTag& tag, Message message) override {
    InboxOf(to).Push({host(), false, channel, tag, Packed(message)});
  }

  void DeliverAll() {
    LocalFrame frame;
    while (Own().Pop(frame)) {
      if (frame.gone) {
        Lose(frame.from);
      } else {
        Deliver(frame.from, frame.channel, frame.tag, std::move(frame.message));
      }
    }
  }

  Inbox& InboxOf(int host) { return (*inboxes_)[host]; }
  Inbox& Own() { return InboxOf(host()); }

  std::shared_ptr<Inboxes> inboxes_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::vector<std::unique_ptr<HostGroup>> MakeLocalHosts(int hosts) {
  const auto inboxes = std::make_shared<Inboxes>(hosts);
  std::vector<std::unique_ptr<HostGroup>> groups;
  for (int host = 0; host < hosts; ++host) {
    groups.push_back(std::make_unique<LocalHost>(host, inboxes));
  }
  return groups;
}

}  // namespace penstock
