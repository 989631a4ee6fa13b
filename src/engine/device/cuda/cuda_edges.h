// Backends of c10d for messages between GPUs, by NCCL.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace penstock {

// As DevicePlugin::MakeBackend. Throws std::runtime_error if nccl.h was not there when the plugin
// was built.
c10::intrusive_ptr<c10d::Backend> MakeCudaBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                                  int rank, int size);

}  // namespace penstock
