// Kernels of TransformerEngine: each takes the sum of its products and its traffic.
#pragma once

#include <utility>

#include "cost_model/layer_work.h"
#include "cost_model/precision.h"

namespace penstock::transformer_engine {

// A matmul of `rows` rows [in], each by one of the matrices [out, in].
struct Matmul {
  std::string_view name;
  double rows = 0, in = 0, out = 0, matrices = 1;
  bool is_grouped = false;  // rows of experts
  double width = 0;         // of an expert on a rank, if it is grouped
};

class KernelList {
 public:
  explicit KernelList(const Microbatch& batch) : batch_(batch), precision_(batch.precision) {}

  // Kernels that are added from now on belong to these modules, and linear layers have this format.
  void Within(int modules) { modules_ = modules; }
  // Returns the format before.
  Precision Format(Precision precision) { return std::exchange(precision_, precision); }

  void Linear(const Matmul& matmul);
  // What a linear layer with an adapter reads and writes in addition.
  void Adapter(const Matmul& matmul);
  // A tensor of bf16 that F and I read or write so often together, F a third of it.
  void Passes(std::string_view name, double elements, double passes);
  // FLOPs of F and of I; `masked` is the share of masked scores, which are skipped.
  void Attention(double forward, double input, double masked, double efficiency);
  // FLOPs of a scan in F; I has 2.5 times as many.
  void Scan(std::string_view name, double flops);
  // Collectives of `bytes` in F, I and W.
  void Exchange(double bytes, int forward, int input, int weight, double exposed);
  void AddForward(KernelCost kernel) { Add(kernel, work_.forward); }
  void AddInput(KernelCost kernel) { Add(kernel, work_.backward_input); }
  void AddWeight(KernelCost kernel) { Add(kernel, work_.backward_weight); }
  // Seconds of the host for F, I and W.
  void Host(double seconds);

  Work Take() { return std::move(work_); }

 private:
  void Add(KernelCost kernel, Kernels& kernels) {
    kernel.modules |= modules_;
    kernels.push_back(kernel);
  }
  KernelCost Product(const Matmul& matmul, double depth) const;
  double QuantizedBytes(const Matmul& matmul) const;

  const Microbatch& batch_;
  Precision precision_;
  int modules_ = 0;
  Work work_;
};

}  // namespace penstock::transformer_engine
