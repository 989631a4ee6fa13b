// The kernels of a layer as frameworks launch them, one or more per operator.
#pragma once

#include <string_view>

#include "cost_model/layer_work.h"
#include "cost_model/microbatch.h"

namespace penstock {

// Adds kernels to F, I and W. Each reads its inputs and writes its outputs once.
class KernelList {
 public:
  explicit KernelList(const Microbatch& batch) : batch_(batch), element_(batch.element_bytes()) {}

  // Kernels that are added from now on belong to these modules.
  void Within(int modules) { modules_ = modules; }

  // `rows` rows [in] by a matrix [out, in], and both products of the backward.
  void Linear(std::string_view name, double rows, double in, double out);

  // `count` products of [rows, in] and [in, out] in one launch.
  KernelCost Product(std::string_view name, double rows, double in, double out, double count) const;

  // Causal attention of `heads` heads by products with all scores in memory, as softmax(QK')V is
  // written. With dropout, scores have a mask of one byte each.
  void UnfusedAttention(double heads, double head_dim);
  // FlashAttention-2 (Dao 2023), whose backward is one kernel and the sum of its outputs.
  void FlashAttention(double heads, double kv_heads, double head_dim, std::int64_t window);
  // Ranks that divide the tokens of a sample exchange keys and values, and in the backward their
  // gradients. `keys` are the elements of both on a rank.
  void ExchangeContext(double queries, double keys);

  // Add kernels that move this many bytes per element together, in F, I and W.
  void Forward(std::string_view name, double elements, double bytes, double kernels = 1) {
    AddForward({.name = name, .bytes = elements * bytes, .kernels = kernels});
  }
  void Input(std::string_view name, double elements, double bytes, double kernels = 1) {
    AddInput({.name = name, .bytes = elements * bytes, .kernels = kernels});
  }
  void Weight(std::string_view name, double elements, double bytes, double kernels = 1) {
    AddWeight({.name = name, .bytes = elements * bytes, .kernels = kernels});
  }

  void AddForward(KernelCost kernel) { Add(kernel, work_.forward); }
  void AddInput(KernelCost kernel) { Add(kernel, work_.backward_input); }
  void AddWeight(KernelCost kernel) { Add(kernel, work_.backward_weight); }
  void Append(const Work& work);
  Work Take() { return std::move(work_); }

  double element() const { return element_; }  // bytes

 private:
  void Add(KernelCost& kernel, Kernels& kernels) {
    kernel.modules |= modules_;
    kernels.push_back(kernel);
  }

  const Microbatch& batch_;
  double element_;
  int modules_ = 0;
  Work work_;
};

}  // namespace penstock
