#include "train/c10d/device_edges.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "base/exception_line.h"
#include "base/index.h"
#include "base/mutex.h"
#include "graph/device/device_plugin.h"
#include "runtime/processes/collectives.h"
#include "runtime/processes/direct_transfers.h"
#include "runtime/processes/process_timeout.h"
#include "train/c10d/c10d_process_group.h"
#include "train/c10d/frame_stores.h"

namespace penstock {
namespace {

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

// Backends of c10d that send tensors of the CPU as frames of another process group. So
// C10dProcessGroup runs where torch.distributed has no group, such as in the program.
class FrameEdges {
 public:
  // Opens one channel of the group, which must outlive the backends.
  explicit FrameEdges(ProcessGroup& processes);

  // A backend over this process's two edges with `process`; the lower process has rank 0. A send
  // copies the tensor and is complete. The wait for a receive has no timeout, and throws
  // std::runtime_error if the group has ended.
  c10::intrusive_ptr<c10d::Backend> With(int process) const;

 private:
  const std::shared_ptr<FrameInboxes> inboxes_;
};

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

FrameEdges::FrameEdges(ProcessGroup& processes)
    : inboxes_(std::make_shared<FrameInboxes>(processes)) {}

c10::intrusive_ptr<c10d::Backend> FrameEdges::With(int process) const {
  return c10::make_intrusive<FrameBackend>(inboxes_, process);
}

void AwaitStream(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

class DirectWork final : public c10d::Work {
 public:
  DirectWork(at::Tensor tensor, std::unique_ptr<DirectTransfers::Transfer> transfer)
      : tensor_(std::move(tensor)), transfer_(std::move(transfer)) {}

  bool isCompleted() override { return transfer_->IsDone(); }
  bool isSuccess() const override { return true; }  // otherwise the transfer throws
  // Without a timeout: the group knows better which processes are lost.
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    constexpr int kYields = 1000;
    constexpr std::chrono::microseconds kLook{20};
    for (int looks = 0; !transfer_->IsDone(); ++looks) {
      looks < kYields ? std::this_thread::yield() : std::this_thread::sleep_for(kLook);
    }
    return true;
  }

 private:
  const at::Tensor tensor_;
  const std::unique_ptr<DirectTransfers::Transfer> transfer_;
};

class DirectBackend final : public c10d::Backend {
 public:
  DirectBackend(DirectTransfers& transfers, int other, int rank)
      : Backend(rank, 2), transfers_(transfers), other_(other) {}

  const std::string getBackendName() const override { return "direct"; }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int /*peer*/,
                                      int /*tag*/) override {
    const at::Tensor& tensor = tensors.front();
    AwaitStream(tensor.device());
    const auto* const data = static_cast<const std::byte*>(tensor.const_data_ptr());
    return c10::make_intrusive<DirectWork>(tensor,
                                           transfers_.Send(other_, {data, tensor.nbytes()}));
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int /*peer*/,
                                      int /*tag*/) override {
    const at::Tensor& tensor = tensors.front();
    AwaitStream(tensor.device());
    auto* const data = static_cast<std::byte*>(tensor.mutable_data_ptr());
    return c10::make_intrusive<DirectWork>(tensor,
                                           transfers_.Receive(other_, {data, tensor.nbytes()}));
  }

 private:
  DirectTransfers& transfers_;
  const int other_;
};

// Returns a backend over this process's two edges with process `other`; this process has `rank` in
// it. The host waits, on the calling thread, until the thread's stream has computed what is sent,
// or used before what is received into; and waits for transfers in Work::wait. Tensors must be
// contiguous. `transfers` must outlive the backend.
c10::intrusive_ptr<c10d::Backend> MakeDirectBackend(DirectTransfers& transfers, int other,
                                                    int rank) {
  return c10::make_intrusive<DirectBackend>(transfers, other, rank);
}

using Store = c10::intrusive_ptr<c10d::Store>;

// An edge between this process and another one.
struct Edge {
  int from = 0, to = 0;
  int other = 0;
  int rank = 0;  // of this process among the two
};

// Makes the backend of an edge for tensors of the device. May throw std::exception.
using MakeBackend = std::function<c10::intrusive_ptr<c10d::Backend>(const Edge& edge)>;

Result<MakeBackend> ByPlugin(Collectives& all, C10dPlace& place) {
  const auto stores = std::make_shared<FrameStores>(*all.group());
  place.stores = stores;
  PENSTOCK_TRY(DevicePlugin* const plugin, OnAll(all, OpenDevicePlugin(place.device)));
  return [plugin, stores](const Edge& edge) {
    const std::string name = fmt::format("{} to {}", edge.from, edge.to);
    return plugin->MakeBackend(
        c10::make_intrusive<c10d::PrefixStore>(name, stores->With(edge.other)), edge.rank, 2);
  };
}

Result<MakeBackend> ByTransfers(Collectives& all) {
  auto found = all.group()->FindDirectTransfers();
  if (!found) found.error().message = "transport: mpi: " + found.error().message;
  PENSTOCK_TRY(DirectTransfers* const transfers, OnAll(all, std::move(found)));
  return [transfers](const Edge& edge) {
    return MakeDirectBackend(*transfers, edge.other, edge.rank);
  };
}

Status AddEdges(ProcessGroup& processes, const std::string& transport,
                const MakeBackend& make_backend, C10dPlace& place) {
  const FrameEdges frames(processes);
  const auto group_of = [&](const Edge& edge) {
    auto group = c10::make_intrusive<c10d::ProcessGroup>(Store(), edge.rank, 2);
    // c10d takes two backends of the same type for one.
    using enum c10d::ProcessGroup::BackendType;
    group->setBackend(c10::kCPU, GLOO, frames.With(edge.other));
    group->setBackend(place.device.type(), CUSTOM, make_backend(edge));
    return group;
  };
  try {
    for (int other = 0; other < processes.processes(); ++other) {
      if (other == place.process) continue;
      const int rank = other > place.process ? 0 : 1;
      place.to[Index(other)] = group_of({place.process, other, other, rank});
      place.from[Index(other)] = group_of({other, place.process, other, rank});
    }
  } catch (const std::exception& error) {
    return MakeError(ErrorCode::kUnavailable, "transport: {}: {}", transport, ExceptionLine(error));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ProcessGroup>> ConnectByDevice(ProcessGroup& processes, c10::Device device,
                                                      const std::string& transport) {
  if (device.is_cpu()) {
    return InvalidArgument("transport: {} moves data of a device, but device is cpu: leave it out",
                           transport);
  }
  Collectives all(&processes);
  C10dPlace place;
  place.process = processes.process();
  place.machines = processes.machines();
  place.device = device;
  place.to.resize(Index(processes.processes()));
  place.from.resize(Index(processes.processes()));
  PENSTOCK_TRY(place.timeout, ProcessTimeout());
  PENSTOCK_TRY(const MakeBackend make_backend,
               transport == "mpi" ? ByTransfers(all) : ByPlugin(all, place));
  PENSTOCK_TRY_STATUS(all.All(AddEdges(processes, transport, make_backend, place)));
  return MakeC10dProcessGroup(std::move(place));
}

}  // namespace penstock
