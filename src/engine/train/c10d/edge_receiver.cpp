#include "train/c10d/edge_receiver.h"

#include <exception>
#include <utility>
#include <vector>

#include "train/message/tensor_message.h"

namespace penstock {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 40;  // bytes of a frame

}  // namespace

EdgeReceiver::EdgeReceiver(C10dGroup group, int peer, c10::Device device,
                           std::chrono::milliseconds timeout, OnFrame on_frame,
                           std::function<void()> on_end)
    : group_(std::move(group)),
      peer_(peer),
      device_(device),
      timeout_(timeout),
      on_frame_(std::move(on_frame)),
      on_end_(std::move(on_end)) {
  if (!device.is_cpu()) queue_.emplace(device);
  thread_ = std::thread([this] { Loop(); });
}

EdgeReceiver::~EdgeReceiver() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
    if (work_ && !has_ended_) work_->abort();
  }
  thread_.join();
}

bool EdgeReceiver::WaitForEnd(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(mutex_);
  while (!has_ended_ && changed_.WaitUntil(lock, deadline)) {
  }
  return has_ended_;
}

void EdgeReceiver::Loop() {
  try {
    while (ReceiveFrame()) {
    }
  } catch (const std::exception&) {  // the other process is lost
  }
  {
    const MutexLock lock(mutex_);
    has_ended_ = true;
    work_.reset();
  }
  changed_.NotifyAll();
  on_end_();
}

bool EdgeReceiver::ReceiveFrame() {
  at::Tensor bytes = BytesTensor(sizeof(EdgeHeader));
  if (!ReceiveInto(bytes)) return false;
  EdgeHeader header;
  std::memcpy(&header, bytes.const_data_ptr(), sizeof(header));
  if (header.channel == kEdgeEnd) return false;
  if (header.channel == kEdgeBeat) return true;
  if (header.bytes < 0 || header.bytes > kMost || header.tensors < 0) return false;
  on_frame_(header, header.tensors > 0 ? ReceiveTensors(header) : ReceiveMessage(header.bytes));
  return true;
}

Message EdgeReceiver::ReceiveTensors(const EdgeHeader& header) {
  const Message types = ReceiveMessage(header.bytes);
  const DeviceScope scope(*queue_);
  std::vector<at::Tensor> tensors = EmptyTensors(types, device_);
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (const at::Tensor& tensor : tensors) {
    std::vector<at::Tensor> one = {tensor};
    works.push_back(group_->recv(one, peer_, kEdgeTag));
  }
  for (const auto& work : works) work->wait();  // the queue waits, not the thread
  return ToMessage(tensors);
}

Message EdgeReceiver::ReceiveMessage(std::int64_t bytes) {
  if (bytes == 0) return AllocateMessage(0);
  auto owner = std::make_unique<at::Tensor>(BytesTensor(bytes));
  if (!ReceiveInto(*owner)) throw std::runtime_error("the frame ends early");
  void* const data = owner->mutable_data_ptr();
  return Message(data, static_cast<std::size_t>(bytes), owner.release(),
                 [](void* tensor) { delete static_cast<at::Tensor*>(tensor); });
}

// Returns false if the receiver stops.
bool EdgeReceiver::ReceiveInto(const at::Tensor& bytes) {
  std::vector<at::Tensor> one = {bytes};
  c10::intrusive_ptr<c10d::Work> work;
  {
    const MutexLock lock(mutex_);
    if (is_stopping_) return false;
    work = work_ = group_->recv(one, peer_, kEdgeTag);
  }
  const bool done = work->wait(timeout_);
  const MutexLock lock(mutex_);
  work_.reset();
  return done && !is_stopping_;
}

}  // namespace penstock
