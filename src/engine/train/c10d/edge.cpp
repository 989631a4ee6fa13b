#include "train/c10d/edge.h"

#include <ATen/ops/from_blob.h>

#include <exception>

#include "base/index.h"
#include "train/message/tensor_message.h"

namespace penstock {
namespace {

constexpr std::size_t kMostCopied =
    64 * 1024;  // bytes of a message that its owner gets back at once

constexpr std::chrono::milliseconds kLook{1};  // while tensors are in flight

constexpr std::int64_t kMost = std::int64_t{1} << 40;  // bytes of a frame

}  // namespace

EdgeSender::EdgeSender(C10dGroup group, int peer, c10::Device device,
                       std::chrono::milliseconds beat, std::chrono::milliseconds timeout,
                       std::function<void()> on_lost)
    : group_(std::move(group)),
      peer_(peer),
      beat_(beat),
      timeout_(timeout),
      on_lost_(std::move(on_lost)) {
  if (!device.is_cpu()) queue_.emplace(device);
  thread_ = std::thread([this] { Loop(); });
}

EdgeSender::~EdgeSender() {
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
  }
  changed_.NotifyOne();
  thread_.join();
}

void EdgeSender::Put(EdgeHeader header, Message message) {
  const bool is_short = message.bytes() <= kMostCopied && DeviceTensors(message).empty();
  if (is_short && !message.empty()) message = Packed(message);
  {
    const MutexLock lock(mutex_);
    frames_.emplace_back(header, std::move(message));
  }
  changed_.NotifyOne();
}

void EdgeSender::Loop() {
  try {
    while (auto frame = Next()) SendFrame(std::move(*frame));
    for (auto& [work, message] : in_flight_) work->wait();
    if (queue_) queue_->Synchronize();
  } catch (const std::exception&) {
    on_lost_();
  }
  in_flight_.clear();
}

// Returns nothing once all is sent and the sender ends.
std::optional<EdgeSender::Frame> EdgeSender::Next() {
  const auto deadline = std::chrono::steady_clock::now() + beat_;
  for (;;) {
    ReleaseSent();
    MutexLock lock(mutex_);
    if (!frames_.empty()) {
      Frame frame = std::move(frames_.front());
      frames_.pop_front();
      return frame;
    }
    if (is_ending_) return std::nullopt;
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return Frame(EdgeHeader{.channel = kEdgeBeat}, Message());
    static_cast<void>(
        changed_.WaitUntil(lock, in_flight_.empty() ? deadline : std::min(deadline, now + kLook)));
  }
}

void EdgeSender::SendFrame(Frame frame) {
  auto& [header, message] = frame;
  const std::span<const at::Tensor> tensors = DeviceTensors(message);
  if (!tensors.empty()) {
    const Message types = TypesMessage(tensors);
    header.tensors = static_cast<std::int64_t>(tensors.size());
    header.bytes = static_cast<std::int64_t>(types.bytes());
    SendBytes(ToTensor(header));
    at::Tensor bytes = BytesTensor(header.bytes);
    types.Pack(static_cast<std::byte*>(bytes.mutable_data_ptr()));
    SendBytes(std::move(bytes));
    return SendTensors(std::move(message));
  }
  header.bytes = static_cast<std::int64_t>(message.bytes());
  SendBytes(ToTensor(header));
  if (header.bytes == 0) return;
  if (message.parts().size() == 1) {
    return SendBytes(at::from_blob(message.data(), {header.bytes}, at::kByte));
  }
  at::Tensor bytes = BytesTensor(header.bytes);
  message.Pack(static_cast<std::byte*>(bytes.mutable_data_ptr()));
  SendBytes(std::move(bytes));
}

// Does not wait for the device: the work keeps the message.
void EdgeSender::SendTensors(Message message) {
  const DeviceScope scope(*queue_);
  AwaitTensors(message);
  Work last;
  for (const at::Tensor& tensor : DeviceTensors(message)) {
    std::vector<at::Tensor> one = {tensor};
    Work work = group_->send(one, peer_, kEdgeTag);
    if (last) in_flight_.emplace_back(std::move(last), Message());
    last = std::move(work);
  }
  in_flight_.emplace_back(std::move(last), std::move(message));
}

void EdgeSender::SendBytes(at::Tensor bytes) {
  std::vector<at::Tensor> one = {std::move(bytes)};
  group_->send(one, peer_, kEdgeTag)->wait(timeout_);
}

void EdgeSender::ReleaseSent() {
  while (!in_flight_.empty() && in_flight_.front().first->isCompleted()) in_flight_.pop_front();
}

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
