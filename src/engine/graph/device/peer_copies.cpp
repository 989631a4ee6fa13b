#include "graph/device/peer_copies.h"

#include <optional>

namespace penstock {

void PeerCopies::Take(DevicePoint& ready, std::span<at::Tensor> tensors) {
  const c10::Device device = tensors.front().device();
  const auto there = there_.try_emplace(device.index(), device).first;
  std::optional<DevicePoint> arrived;
  {
    const DeviceScope on_here(here_), on_there(there->second);
    ready.Await(tensors);
    for (at::Tensor& tensor : tensors) tensor = tensor.to(here_.device(), /*non_blocking=*/true);
    arrived.emplace(here_.device());
  }
  arrived->Await(tensors);
}

}  // namespace penstock
