#include "train/evaluation/next_token.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <stdexcept>

namespace penstock {
namespace {

bool AllFinite(const at::Tensor& values) { return at::isfinite(values).all().item<bool>(); }

std::int64_t Draw(const at::Tensor& logits, at::Generator& generator) {
  return at::multinomial(at::softmax(logits, 0), 1, false, generator).item<std::int64_t>();
}

// Returns how many of the probabilities, in descending order, top_p keeps: at least one.
std::int64_t CountKept(const at::Tensor& probabilities, double top_p) {
  const at::Tensor before = at::cumsum(probabilities, 0) - probabilities;
  return std::max<std::int64_t>(1, (before < top_p).sum().item<std::int64_t>());
}

}  // namespace

std::int64_t NextToken(const at::Tensor& logits, const Sampling& sampling,
                       at::Generator& generator) {
  if (!AllFinite(logits)) {
    throw std::runtime_error(
        "the model's output is not finite (NaN or Inf): its training diverged; take an earlier "
        "checkpoint, or train again with a smaller optimizer.lr");
  }
  const at::Tensor scaled = logits / sampling.temperature;
  // As the temperature approaches 0, only the most likely token remains. It is chosen directly if
  // the scaled logits exceed the range of fp32.
  if (sampling.temperature <= 0 || !AllFinite(scaled)) return logits.argmax(0).item<std::int64_t>();
  const bool keeps_all = sampling.top_k == 0 && sampling.top_p >= 1;
  if (keeps_all) return Draw(scaled, generator);
  // Stable, so that equal logits keep the order of tokens.
  auto [sorted, tokens] = at::sort(scaled, /*stable=*/true, 0, /*descending=*/true);
  const std::int64_t all = sorted.size(0);
  sorted = sorted.narrow(0, 0, sampling.top_k > 0 ? std::min(sampling.top_k, all) : all);
  if (sampling.top_p < 1) {
    sorted = sorted.narrow(0, 0, CountKept(at::softmax(sorted, 0), sampling.top_p));
  }
  return tokens[Draw(sorted, generator)].item<std::int64_t>();
}

}  // namespace penstock
