#include "runtime/hosts/local_hosts.h"

#include <deque>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace penstock {
namespace {

struct LocalFrame {
  int from = 0;
  bool gone = false;  // the sender has vanished; the fields below are unused
  std::int64_t channel = 0;
  FrameTag tag;
  Message message;
};

// The frames in flight to one host.
class Inbox {
 public:
  void Push(LocalFrame frame) {
    {
      const MutexLock lock(mutex_);
      if (closed_) return;
      frames_.push_back(std::move(frame));
    }
    changed_.NotifyOne();
  }
  // Waits for the next frame. Returns false once the inbox is closed.
  bool Pop(LocalFrame& frame) {
    MutexLock lock(mutex_);
    while (!closed_ && frames_.empty()) changed_.Wait(lock);
    if (closed_) return false;
    frame = std::move(frames_.front());
    frames_.pop_front();
    return true;
  }
  void Close() {
    {
      const MutexLock lock(mutex_);
      closed_ = true;
    }
    changed_.NotifyOne();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<LocalFrame> frames_ PENSTOCK_GUARDED_BY(mutex_);
  bool closed_ PENSTOCK_GUARDED_BY(mutex_) = false;
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
  std::thread thread_;  // last, because it uses all of the above
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
