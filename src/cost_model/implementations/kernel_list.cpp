#include "cost_model/implementations/kernel_list.h"

#include <utility>

namespace penstock {
namespace {

// Relative to the efficiency of other matmuls: FlashAttention-2 reaches 72% of an A100's peak
// forward and 63% backward (Dao 2023, section 4).
constexpr double kFlashEfficiency = 0.8;

}  // namespace

void KernelList::Linear(std::string_view name, double rows, double in, double out) {
  KernelCost forward = Product(name, rows, in, out, 1);
  forward.is_linear = true;
  KernelCost input = Product(name, rows, out, in, 1);
  input.is_linear = true;
  KernelCost weight = Product(name, in, rows, out, 1);
  weight.is_linear = true;
  AddForward(forward);
  AddInput(input);
  AddWeight(weight);
}

KernelCost KernelList::Product(std::string_view name, double rows, double in, double out,
                               double count) const {
  return {.name = name,
          .flops = 2 * count * rows * in * out,
          .bytes = count * element_ * (rows * in + in * out + rows * out)};
}

void KernelList::UnfusedAttention(double heads, double head_dim) {
  const double queries = static_cast<double>(batch_.sequence) / static_cast<double>(batch_.context);
  const auto keys = static_cast<double>(batch_.sequence + batch_.earlier);
  const double count = static_cast<double>(batch_.samples) * heads;
  const double scores = count * queries * keys;
  const double masked_bytes = 2 * element_ + 1;
  const int outside = std::exchange(modules_, modules_ | kCoreAttention);
  AddForward(Product("scores", queries, head_dim, keys, count));
  Forward("softmax", scores, 2 * element_);
  if (batch_.profile.dropout) Forward("dropout of scores", scores, masked_bytes);
  AddForward(Product("weighted values", queries, keys, head_dim, count));
  AddInput(Product("gradient of scores", queries, head_dim, keys, count));
  AddInput(Product("gradient of values", keys, queries, head_dim, count));
  if (batch_.profile.dropout) Input("dropout of scores", scores, masked_bytes);
  Input("softmax", scores, 3 * element_);
  AddInput(Product("gradient of queries", queries, keys, head_dim, count));
  AddInput(Product("gradient of keys", keys, queries, head_dim, count));
  modules_ = outside;
}

void KernelList::FlashAttention(double heads, double kv_heads, double head_dim,
                                std::int64_t window) {
  const auto sequence = static_cast<double>(batch_.sequence);
  const double own = 2 * batch_.tokens() * sequence * heads * head_dim;
  const double reach = 1 + static_cast<double>(batch_.earlier) / sequence;
  const double masked = own - own * UnmaskedScores(batch_, window);
  const double queries = batch_.tokens() * heads * head_dim * element_;
  const double keys = batch_.tokens() * kv_heads * head_dim * element_ * reach;
  const int outside = std::exchange(modules_, modules_ | kCoreAttention);
  AddForward({.name = "attention",
              .flops = 2 * own * reach,
              .skipped = 2 * masked,
              .bytes = 2 * (queries + keys),
              .efficiency = kFlashEfficiency});
  AddInput({.name = "attention",
            .flops = 5 * own * reach,
            .skipped = 5 * masked,
            .bytes = 4 * (queries + keys),
            .kernels = 2,
            .efficiency = kFlashEfficiency});
  modules_ = outside;
}

void KernelList::ExchangeContext(double queries, double keys) {
  const auto ranks = static_cast<double>(batch_.context);
  if (ranks == 1) return;
  const bool is_ring = batch_.context_exchange == ContextExchange::kRing;
  const bool is_ulysses = batch_.context_exchange == ContextExchange::kUlysses;
  const double others =
      is_ulysses ? 2 * (queries + keys) * (ranks - 1) / ranks : keys * (ranks - 1);
  // A ring sends while it computes attention with the keys that it has, in one kernel each, and
  // merges the results.
  constexpr double kKernelsPerStep = 4;
  const int steps = is_ring ? static_cast<int>(batch_.context) - 1 : (is_ulysses ? 4 : 1);
  const KernelCost exchange{.name = "exchange of keys and values",
                            .collectives = steps,
                            .shared = others * element_,
                            .kernels = is_ring ? kKernelsPerStep * steps : 1};
  AddForward(exchange);
  KernelCost gradients = exchange;
  gradients.shared *= 2;
  AddInput(gradients);
}

void KernelList::Append(const Work& work) { penstock::Append(work, work_); }

}  // namespace penstock
