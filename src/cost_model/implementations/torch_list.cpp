#include "cost_model/implementations/torch_list.h"

#include <utility>

#include "cost_model/implementations/torch_constants.h"

namespace penstock {

// torchtitan lists cuDNN before FlashAttention on Blackwell since 2025-05 and everywhere since 2026
// (models/common/attention.py: sdpa_backends); before, torch prefers FlashAttention.
AttentionKernel TorchAttention(const Profile& profile) {
  using enum AttentionKernel;
  if (profile.attention != kAuto) return profile.attention;
  const bool is_blackwell = profile.generation == Generation::kBlackwell;
  if (profile.generation == Generation::kAmpere) return kFlash;
  const std::string_view first_with_fused = is_blackwell ? "2025-05" : "2026-01";
  return profile.release.empty() || profile.release >= first_with_fused ? kFused : kFlash;
}

TorchList::Products TorchList::ProductsOf(std::string_view name, double rows, double in,
                                          double out) const {
  Products products{list_.Product(name, rows, in, out, 1), list_.Product(name, rows, out, in, 1),
                    list_.Product(name, in, rows, out, 1)};
  products.forward.depth = in;
  products.input.depth = out;
  products.weight.depth = rows;
  return products;
}

void TorchList::AddProducts(const Products& products, bool is_recomputed) {
  AddForward(products.forward, is_recomputed);
  AddInput(products.input);
  AddWeight(products.weight);
}

void TorchList::Linear(std::string_view name, double rows, double in, double out) {
  Products products = ProductsOf(name, rows, in, out);
  for (KernelCost* product : {&products.forward, &products.input, &products.weight}) {
    product->is_linear = true;
  }
  const bool is_recomputed = IsNextRecomputed();
  AddProducts(products, is_recomputed);
  if (!IsQuantized(batch_.precision)) return;
  AddForward({.name = "cast of inputs", .bytes = torch_constants::kCast * rows * in, .kernels = 2},
             is_recomputed);
  AddInput(
      {.name = "cast of gradients", .bytes = torch_constants::kCast * rows * out, .kernels = 2});
  AddWeight({.name = "cast of both",
             .bytes = torch_constants::kCastWeight * rows * (in + out),
             .kernels = 2});
}

void TorchList::PlainLinear(std::string_view name, double rows, double in, double out) {
  AddProducts(ProductsOf(name, rows, in, out), true);
}

// In bf16: no measured row has float8 experts.
void TorchList::GroupedLinear(std::string_view name, double rows, double in, double out,
                              double matrices, double width) {
  Products products = ProductsOf(name, rows, in, out);
  products.weight.depth = rows / matrices;
  for (KernelCost* product : {&products.forward, &products.input, &products.weight}) {
    product->bytes += element() * (matrices - 1) * in * out;
    product->kernels = batch_.profile.grouped_experts ? 1 : matrices;
    product->efficiency = width / (width + transformer_engine::kGroupedWidth);
  }
  AddProducts(products, false);
}

void TorchList::Attention(double heads, double kv_heads, double head_dim, std::int64_t window) {
  if (TorchAttention(batch_.profile) == AttentionKernel::kUnfused) {
    list_.UnfusedAttention(heads, head_dim);
    return;
  }
  const bool is_ampere = batch_.profile.generation == Generation::kAmpere;
  double part_forward =
      is_ampere ? torch_constants::kFlashForward : torch_constants::kFlashForwardHopper;
  double part_backward =
      is_ampere ? torch_constants::kFlashBackward : torch_constants::kFlashBackwardHopper;
  double factor = batch_.context > 1 ? torch_constants::kRing : 1;
  if (TorchAttention(batch_.profile) == AttentionKernel::kFused && !is_ampere) {
    factor *= torch_constants::kFusedAttention;
  }
  const auto sequence = static_cast<double>(batch_.sequence);
  const double own = 2 * batch_.tokens() * sequence * heads * head_dim;
  const double reach = 1 + static_cast<double>(batch_.earlier) / sequence;
  const double masked = own - own * UnmaskedScores(batch_, window);
  const double queries = batch_.tokens() * heads * head_dim * element();
  const double keys = batch_.tokens() * kv_heads * head_dim * element() * reach;
  const int outside = std::exchange(modules_, modules_ | kCoreAttention);
  AddForward({.name = "attention",
              .flops = 2 * own * reach,
              .skipped = 2 * masked,
              .bytes = 2 * (queries + keys),
              .efficiency = factor * part_forward / torch_constants::kMatmulBf16},
             false);
  AddInput({.name = "attention",
            .flops = 5 * own * reach,
            .skipped = 5 * masked,
            .bytes = 4 * (queries + keys),
            .kernels = 2,
            .efficiency = factor * part_backward / torch_constants::kMatmulBf16});
  modules_ = outside;
}

// DTensor waits for each collective. With `async_tensor`, matmuls by pieces run under their
// messages (torch's micro_pipeline_tp pass). Per-op recomputation gathers again. W reads what F has
// gathered.
void TorchList::ExchangeTensor(double sent) {
  if (batch_.tensor == 1) return;
  const double exposed = batch_.profile.async_tensor ? torch_constants::kAsyncExposed : 1;
  KernelCost one{.name = "gather of hidden states",
                 .sent = sent,
                 .collectives = 1,
                 .kernels = 0,
                 .exposed = exposed};
  AddForward(one, true);
  AddInput(one);
  one.name = "sum of hidden states";
  AddForward(one, false);
  AddInput(one);
}

void TorchList::Route(double routed, double gathered) {
  const KernelCost exchange{.name = "exchange of tokens",
                            .routed = routed,
                            .collectives = 1,
                            .kernels = 0,
                            .gathered = gathered};
  AddForward(exchange, false);
  AddInput(exchange);
}

void TorchList::Host(double seconds) {
  AddForward({.name = "wait for the number of rows", .host = seconds}, false);
  AddInput({.name = "wait for the number of rows", .host = seconds});
}

void TorchList::Forward(std::string_view name, double elements, double bytes, double kernels) {
  AddForward({.name = name, .bytes = elements * bytes, .kernels = kernels}, true);
}

void TorchList::Append(const Work& work) {
  Work marked = work;
  for (KernelCost& kernel : marked.forward) {
    const bool is_attention = (kernel.modules & kCoreAttention) != 0;
    const bool is_again =
        kernel.is_linear ? IsNextRecomputed() : kernel.collectives == 0 && !is_attention;
    if (is_again) kernel.modules |= kNotKeptByOp;
  }
  list_.Append(marked);
}

void TorchList::AddForward(KernelCost kernel, bool is_recomputed) {
  kernel.modules = modules_ | (is_recomputed ? kNotKeptByOp : 0);
  list_.AddForward(kernel);
}

void TorchList::AddInput(KernelCost kernel) {
  kernel.modules = modules_;
  list_.AddInput(kernel);
}

void TorchList::AddWeight(KernelCost kernel) {
  kernel.modules = modules_;
  list_.AddWeight(kernel);
}

}  // namespace penstock
