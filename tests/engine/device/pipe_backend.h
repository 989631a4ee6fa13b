// PipeBackend: a backend of c10d that sends tensors of the test device from one process to another
// through a named pipe, for runs of several processes.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace penstock::testing {

class PipeBackend final : public c10d::Backend {
 public:
  PipeBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
      : Backend(rank, size), store_(std::move(store)) {}
  ~PipeBackend() override;

  const std::string getBackendName() const override { return "pipe"; }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  int pipe_ = -1;  // opened at the first send, or at the first wait for a receive
};

}  // namespace penstock::testing
