// Several processes of a run, emulated within one. Each has a thread that delivers its frames.
// Every frame is serialized to bytes, as between processes.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "runtime/processes/process_group.h"

namespace penstock {

struct LocalFrame {
  int from = 0;
  bool gone = false;  // the sender has vanished; the fields below are unused
  std::int64_t channel = 0;
  FrameTag tag;
  Message message;
};

// The frames in flight to one process.
class LocalInbox {
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

using LocalInboxes = std::vector<LocalInbox>;  // by process

class LocalProcess final : public ProcessGroup {
 public:
  LocalProcess(int process, std::shared_ptr<LocalInboxes> inboxes)
      : ProcessGroup(process, static_cast<int>(inboxes->size())),
        inboxes_(std::move(inboxes)),
        thread_([this] { DeliverAll(); }) {}

  ~LocalProcess() override {
    Own().Close();
    thread_.join();
    for (int to = 0; to < processes(); ++to) {
      if (to != process()) InboxOf(to).Push({process(), true, 0, {}, {}});
    }
  }

 private:
  void SendFrame(int to, std::int64_t channel, const FrameTag& tag, Message message) override {
    InboxOf(to).Push({process(), false, channel, tag, Packed(message)});
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

  LocalInbox& InboxOf(int process) { return (*inboxes_)[process]; }
  LocalInbox& Own() { return InboxOf(process()); }

  std::shared_ptr<LocalInboxes> inboxes_;
  std::thread thread_;  // last, because it uses all of the above
};

// Returns the groups of all processes, by process. Destroying a group makes a process vanish for
// the others. No other thread may use the group at that time.
inline std::vector<std::unique_ptr<ProcessGroup>> MakeLocalProcesses(int processes) {
  const auto inboxes = std::make_shared<LocalInboxes>(processes);
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  for (int process = 0; process < processes; ++process) {
    groups.push_back(std::make_unique<LocalProcess>(process, inboxes));
  }
  return groups;
}

}  // namespace penstock
