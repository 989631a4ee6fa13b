#include "train/c10d/direct_backend.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace penstock {
namespace {

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

}  // namespace

c10::intrusive_ptr<c10d::Backend> MakeDirectBackend(DirectTransfers& transfers, int other,
                                                    int rank) {
  return c10::make_intrusive<DirectBackend>(transfers, other, rank);
}

}  // namespace penstock
