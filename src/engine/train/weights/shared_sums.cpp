#include "train/weights/shared_sums.h"

#include <array>
#include <utility>

#include "base/index.h"
#include "train/weights/exchanged_tensors.h"

namespace penstock {

void SharedSums::Add(at::Tensor gradient, int holder, int holders) {
  parameters_.push_back(
      Parameter{std::move(gradient), holder, {}, std::vector<at::Tensor>(Index(holders))});
}

Message SharedSums::Share(int parameter) {
  Parameter& shared = *parameters_[parameter];
  const at::Tensor& gradient = shared.gradient;
  Unread(gradient.numel(), gradient.options(), shared.outgoing)
      .copy_(InMemory(gradient, 0, gradient.numel()));
  return MessageOf(shared.outgoing);
}

void SharedSums::Take(int parameter, int holder, Message gradient) {
  Parameter& shared = *parameters_[parameter];
  const at::Tensor& own = shared.gradient;
  const std::array types = {ContiguousType(own.scalar_type(), {own.numel()})};
  shared.incoming[holder] =
      TensorsOf(std::move(gradient), types, "gradients", own.device()).front();
}

// Every stage adds in the order of the holders, so that all arrive at the same sum.
void SharedSums::Sum(int parameter) {
  Parameter& shared = *parameters_[parameter];
  const at::Tensor flat = InMemory(shared.gradient, 0, shared.gradient.numel());
  std::vector<at::Tensor> parts;
  for (std::size_t holder = 0; holder < shared.incoming.size(); ++holder) {
    const bool is_own = static_cast<int>(holder) == shared.holder;
    parts.push_back(is_own ? flat : shared.incoming[holder]);
  }
  SumParts(parts, flat);
  for (at::Tensor& tensor : shared.incoming) tensor.reset();
}

}  // namespace penstock
