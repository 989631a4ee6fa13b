// EdgeReceiver: the frames from another process to this one, in order. Private to train/c10d.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "graph/device/device_queue.h"
#include "train/c10d/c10d_process_group.h"
#include "train/c10d/edge_header.h"

namespace penstock {

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
