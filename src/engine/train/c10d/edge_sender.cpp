#include "train/c10d/edge_sender.h"

#include <ATen/ops/from_blob.h>

#include <exception>
#include <vector>

#include "train/message/tensor_message.h"

namespace penstock {
namespace {

constexpr std::size_t kMostCopied =
    64 * 1024;  // bytes of a message that its owner gets back at once
constexpr std::chrono::milliseconds kLook{1};  // while tensors are in flight

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

}  // namespace penstock
