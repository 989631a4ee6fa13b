// The kernels of torchtitan's layers: those of penstock's list, as torch's libraries run them, and
// which of them per-op recomputation computes again.
#pragma once

#include <string_view>

#include "cost_model/implementations/kernel_list.h"
#include "cost_model/layer_work.h"
#include "cost_model/microbatch.h"

namespace penstock {

// Whether a compiler fuses the operators of a layer.
enum class TorchMode { kEager, kCompiled };

// torchtitan/distributed/activation_checkpoint.py, SelectiveAC: the outputs of attention, of every
// other matmul and of reduce-scatters are kept, and all else is computed again.
class TorchList {
 public:
  TorchList(const Microbatch& batch, TorchMode mode) : batch_(batch), mode_(mode), list_(batch) {}

  void Within(int modules) { modules_ = modules; }
  double element() const { return list_.element(); }
  bool is_compiled() const { return mode_ == TorchMode::kCompiled; }

  // Quantized where the precision is; casts are part of the matmul's traffic.
  void Linear(std::string_view name, double rows, double in, double out);
  // Never quantized, and always computed again: a router, or a head, which no layer has.
  void PlainLinear(std::string_view name, double rows, double in, double out);
  // `rows` rows, each by one of `matrices` matrices, in one launch, or in one for each. Kept.
  // `width` is the experts' on a rank.
  void GroupedLinear(std::string_view name, double rows, double in, double out, double matrices,
                     double width);
  void Attention(double heads, double kv_heads, double head_dim, std::int64_t window);
  void ExchangeContext(double queries, double keys) { list_.ExchangeContext(queries, keys); }
  // The ranks that divide a layer gather its input and scatter the sum of its outputs.
  void ExchangeTensor(double sent);
  // Tokens go to the ranks of their experts, or back: what a rank sends to these, or gets of all.
  void Route(double routed, double gathered);
  // The host waits for the device in F and I.
  void Host(double seconds);

  void Forward(std::string_view name, double elements, double bytes, double kernels = 1);
  void Input(std::string_view name, double elements, double bytes, double kernels = 1) {
    AddInput({.name = name, .bytes = elements * bytes, .kernels = kernels});
  }
  void Weight(std::string_view name, double elements, double bytes, double kernels = 1) {
    AddWeight({.name = name, .bytes = elements * bytes, .kernels = kernels});
  }
  // Adds kernels that no list here knows better.
  void Append(const Work& work);
  Work Take() { return list_.Take(); }

 private:
  // Whether the next matmul is computed again: every second one is.
  bool IsNextRecomputed() { return ++matmuls_ % 2 == 0; }
  // The products of F, I and W.
  struct Products {
    KernelCost forward, input, weight;
  };
  Products ProductsOf(std::string_view name, double rows, double in, double out) const;
  void AddProducts(const Products& products, bool is_recomputed);
  void AddForward(KernelCost kernel, bool is_recomputed);
  void AddInput(KernelCost kernel);
  void AddWeight(KernelCost kernel);

  const Microbatch& batch_;
  TorchMode mode_;
  KernelList list_;
  int modules_ = 0;
  int matmuls_ = 0;
};

// The kernel that scaled_dot_product_attention chooses.
AttentionKernel TorchAttention(const Profile& profile);

}  // namespace penstock
