#include "train/c10d/c10d_process_group.h"

#include <ATen/ops/from_blob.h>

#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>

#include "base/index.h"
#include "base/mutex.h"
#include "graph/device/device_queue.h"
#include "runtime/processes/process_timeout.h"
#include "train/c10d/edge_header.h"
#include "train/message/tensor_message.h"

namespace penstock {
namespace {

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

constexpr std::size_t kMostCopied =
    64 * 1024;  // bytes of a message that its owner gets back at once

constexpr std::chrono::milliseconds kLook{1};  // while tensors are in flight

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

constexpr std::int64_t kMost = std::int64_t{1} << 40;  // bytes of a frame

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

constexpr int kBeatsPerTimeout = 4;

class C10dProcessGroup final : public ProcessGroup {
 public:
  explicit C10dProcessGroup(C10dPlace place)
      : ProcessGroup(place.process, static_cast<int>(place.to.size()), std::move(place.machines)),
        senders_(place.to.size()),
        receivers_(place.to.size()),
        patience_(place.patience),
        stores_(std::move(place.stores)),
        on_device_(!place.device.is_cpu()) {
    const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(place.timeout);
    for (int other = 0; other < processes(); ++other) {
      if (other == process()) continue;
      const int peer = other > process() ? 1 : 0;
      const std::size_t i = Index(other);
      senders_[i] = std::make_unique<EdgeSender>(std::move(place.to[i]), peer, place.device,
                                                 timeout / kBeatsPerTimeout, timeout,
                                                 [this, other] { Lose(other); });
    }
    // Frames may be delivered from here on, and answered.
    for (int other = 0; other < processes(); ++other) {
      if (other == process()) continue;
      const std::size_t i = Index(other);
      receivers_[i] = std::make_unique<EdgeReceiver>(
          std::move(place.from[i]), other > process() ? 1 : 0, place.device, timeout,
          [this, other](const EdgeHeader& header, Message message) {
            Deliver(other, header.channel, header.tag, std::move(message));
          },
          [this, other] { Lose(other); });
    }
  }

  ~C10dProcessGroup() override {
    for (const auto& sender : senders_) {
      if (sender) sender->Put({.channel = kEdgeEnd}, Message());
    }
    // Otherwise what it has not yet read could be lost with the connection.
    const auto deadline =
        std::chrono::steady_clock::now() + (lost() >= 0 ? std::chrono::milliseconds(0) : patience_);
    for (const auto& receiver : receivers_) {
      if (receiver) receiver->WaitForEnd(deadline);
    }
    receivers_.clear();
    senders_.clear();
  }

  bool TakesDeviceMessages() const override { return on_device_; }

 protected:
  void SendFrame(int to, std::int64_t channel, const FrameTag& tag, Message message) override {
    senders_[Index(to)]->Put({.channel = channel, .tag = tag}, std::move(message));
  }

 private:
  std::vector<std::unique_ptr<EdgeSender>> senders_;      // by process
  std::vector<std::unique_ptr<EdgeReceiver>> receivers_;  // by process
  const std::chrono::milliseconds patience_;
  const std::shared_ptr<const void> stores_;
  const bool on_device_;
};

Result<std::vector<C10dGroup>> GroupsOf(int process, const std::vector<std::string>& names) {
  std::vector<C10dGroup> groups;
  for (std::size_t other = 0; other < names.size(); ++other) {
    if (Index(process) == other) {
      groups.emplace_back();
      continue;
    }
    try {
      groups.push_back(c10d::resolve_process_group(names[other]));
    } catch (const std::exception&) {
      return NotFound("torch.distributed has no process group '{}'", names[other]);
    }
  }
  return groups;
}

}  // namespace

std::unique_ptr<ProcessGroup> MakeC10dProcessGroup(C10dPlace place) {
  return std::make_unique<C10dProcessGroup>(std::move(place));
}

Result<C10dPlace> FindC10dPlace(int process, const std::vector<std::string>& to,
                                const std::vector<std::string>& from) {
  C10dPlace place;
  place.process = process;
  PENSTOCK_TRY(place.timeout, ProcessTimeout());
  PENSTOCK_TRY(place.to, GroupsOf(process, to));
  PENSTOCK_TRY(place.from, GroupsOf(process, from));
  return place;
}

}  // namespace penstock
