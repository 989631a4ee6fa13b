// EdgeSender: the frames from this process to another one, in order. Private to train/c10d.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "graph/device/device_queue.h"
#include "train/c10d/c10d_process_group.h"
#include "train/c10d/edge_header.h"

namespace penstock {

class EdgeSender {
 public:
  // `peer` is the receiver's number in the edge's group. `on_lost` is called at most once, on the
  // sender's thread. If there is no frame for `beat`, a header without one shows that this process
  // lives.
  EdgeSender(C10dGroup group, int peer, c10::Device device, std::chrono::milliseconds beat,
             std::chrono::milliseconds timeout, std::function<void()> on_lost);
  // Sends what is pending.
  ~EdgeSender();
  EdgeSender(const EdgeSender&) = delete;
  EdgeSender& operator=(const EdgeSender&) = delete;

  // Never waits.
  void Put(EdgeHeader header, Message message);

 private:
  using Frame = std::pair<EdgeHeader, Message>;
  using Work = c10::intrusive_ptr<c10d::Work>;

  void Loop();
  std::optional<Frame> Next();
  void SendFrame(Frame frame);
  void SendTensors(Message message);
  void SendBytes(at::Tensor bytes);
  void ReleaseSent();

  const C10dGroup group_;
  const int peer_;
  const std::chrono::milliseconds beat_, timeout_;
  std::optional<DeviceQueue> queue_;  // of tensors of the device
  const std::function<void()> on_lost_;
  std::deque<std::pair<Work, Message>> in_flight_;  // of the thread
  Mutex mutex_;
  CondVar changed_;
  std::deque<Frame> frames_ PENSTOCK_GUARDED_BY(mutex_);
  bool is_ending_ PENSTOCK_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace penstock
