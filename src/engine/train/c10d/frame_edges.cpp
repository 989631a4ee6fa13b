#include "train/c10d/frame_edges.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "base/index.h"
#include "base/mutex.h"

namespace penstock {

// Frames that have arrived, by sender.
class FrameInboxes {
 public:
  explicit FrameInboxes(ProcessGroup& processes)
      : frames_(Index(processes.processes())), channel_(std::make_unique<Channel>(processes)) {
    channel_->Open(
        [this](int from, const FrameTag&, Message message) {
          const MutexLock lock(mutex_);
          frames_[Index(from)].push_back(std::move(message));
          changed_.NotifyAll();
        },
        [this](const Error&) {
          is_aborted_ = true;
          Wake();
        });
  }

  int process() const { return channel_->group().process(); }
  void Send(int to, Message message) { channel_->Send(to, {}, std::move(message)); }

  // Returns nothing once `stop` is true. Throws std::runtime_error if the group has ended.
  std::optional<Message> Take(int from, const std::atomic<bool>& stop) {
    MutexLock lock(mutex_);
    std::deque<Message>& frames = frames_[Index(from)];
    while (frames.empty()) {
      if (stop) return std::nullopt;
      if (is_aborted_) throw std::runtime_error("the run has ended");
      changed_.Wait(lock);
    }
    Message message = std::move(frames.front());
    frames.pop_front();
    return message;
  }
  void Wake() {
    const MutexLock lock(mutex_);
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::atomic<bool> is_aborted_{false};
  std::vector<std::deque<Message>> frames_ PENSTOCK_GUARDED_BY(mutex_);  // by sender
  std::unique_ptr<Channel> channel_;  // last, because its handlers use the inboxes
};

namespace {

class SentWork final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
};

class ReceiveWork final : public c10d::Work {
 public:
  ReceiveWork(std::shared_ptr<FrameInboxes> inboxes, int from, at::Tensor to)
      : inboxes_(std::move(inboxes)), from_(from), to_(std::move(to)) {}

  void abort() override {
    stop_ = true;
    inboxes_->Wake();
  }
  // Without a timeout: the group knows better which processes are lost, and whether this one was
  // stopped for a while.
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    const std::optional<Message> message = inboxes_->Take(from_, stop_);
    if (!message) return false;
    if (message->bytes() != to_.nbytes()) throw std::runtime_error("a frame of another size");
    if (message->bytes() > 0) std::memcpy(to_.mutable_data_ptr(), message->data(), to_.nbytes());
    return true;
  }

 private:
  const std::shared_ptr<FrameInboxes> inboxes_;
  const int from_;
  const at::Tensor to_;
  std::atomic<bool> stop_{false};
};

class FrameBackend final : public c10d::Backend {
 public:
  FrameBackend(std::shared_ptr<FrameInboxes> inboxes, int other)
      : Backend(other > inboxes->process() ? 0 : 1, 2),
        inboxes_(std::move(inboxes)),
        other_(other) {}

  const std::string getBackendName() const override { return "frames"; }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int /*peer*/,
                                      int /*tag*/) override {
    const at::Tensor& tensor = tensors.front();
    const auto* const data = static_cast<const char*>(tensor.const_data_ptr());
    inboxes_->Send(other_, CopyToMessage({data, tensor.nbytes()}));
    return c10::make_intrusive<SentWork>();
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int /*peer*/,
                                      int /*tag*/) override {
    return c10::make_intrusive<ReceiveWork>(inboxes_, other_, tensors.front());
  }

 private:
  const std::shared_ptr<FrameInboxes> inboxes_;
  const int other_;
};

}  // namespace

FrameEdges::FrameEdges(ProcessGroup& processes)
    : inboxes_(std::make_shared<FrameInboxes>(processes)) {}

c10::intrusive_ptr<c10d::Backend> FrameEdges::With(int process) const {
  return c10::make_intrusive<FrameBackend>(inboxes_, process);
}

}  // namespace penstock
