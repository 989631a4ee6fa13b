// The frames between two processes over a group of c10d. Private to train/c10d.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "graph/device/device_queue.h"
#include "runtime/message.h"
#include "train/c10d/c10d_process_group.h"
#include "train/c10d/edge_header.h"

namespace penstock {

// The frames from this process to another one, in order.
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

// The frames from another process to this one, in order.
class EdgeReceiver {
 public:
  using OnFrame = std::function<void(const EdgeHeader& header, Message message)>;

  // `peer` is the sender's number in the edge's group. Calls `on_frame` for each frame, and
  // `on_end` once after the last one, or if none has come for `timeout`, on the receiver's thread.
  EdgeReceiver(C10dGroup group, int peer, c10::Device device, std::chrono::milliseconds timeout,
               OnFrame on_frame, std::function<void()> on_end);
  // Receives no more.
  ~EdgeReceiver();
  EdgeReceiver(const EdgeReceiver&) = delete;
  EdgeReceiver& operator=(const EdgeReceiver&) = delete;

  // Returns whether the last frame arrives by then.
  bool WaitForEnd(std::chrono::steady_clock::time_point deadline);

 private:
  void Loop();
  // Returns whether there may be more.
  bool ReceiveFrame();
  Message ReceiveTensors(const EdgeHeader& header);
  Message ReceiveMessage(std::int64_t bytes);
  bool ReceiveInto(const at::Tensor& bytes);

  const C10dGroup group_;
  const int peer_;
  const c10::Device device_;
  const std::chrono::milliseconds timeout_;
  std::optional<DeviceQueue> queue_;
  const OnFrame on_frame_;
  const std::function<void()> on_end_;
  Mutex mutex_;
  CondVar changed_;
  bool has_ended_ PENSTOCK_GUARDED_BY(mutex_) = false;
  bool is_stopping_ PENSTOCK_GUARDED_BY(mutex_) = false;
  c10::intrusive_ptr<c10d::Work> work_ PENSTOCK_GUARDED_BY(mutex_);  // that the thread waits for
  std::thread thread_;
};

}  // namespace penstock
