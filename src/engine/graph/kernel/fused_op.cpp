#include "graph/kernel/fused_op.h"

#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include "graph/kernel/fused_call.h"

namespace penstock {
namespace {

constexpr unsigned kInline = 16;  // tensors whose addresses need no allocation

// The kernel of both ops. Only callers of the dispatcher reach it: GraphProgram calls kernels
// itself.
std::vector<at::Tensor> Run(at::Tensor* accumulator, at::TensorList inputs, std::string_view text) {
  const c10::Device device = inputs.empty() ? c10::Device(c10::kCPU) : inputs.front().device();
  FusedCall call = FusedCall::Find(text, device);
  if (!call) {
    const std::string copy(text);
    const Status loaded = FusedCall::Load({&copy, 1}, device);
    TORCH_CHECK(loaded, "penstock::fused: ", loaded.error().line());
    call = FusedCall::Find(text, device);
  }
  c10::SmallVector<const void*, kInline> from;
  for (const at::Tensor& input : inputs) from.push_back(input.const_data_ptr());
  std::vector<at::Tensor> outputs;
  outputs.reserve(call.kernel().outputs.size());
  c10::SmallVector<void*, kInline> to;
  for (const TensorType& type : call.kernel().outputs) {
    outputs.push_back(call.NewOutput(type));
    to.push_back(outputs.back().mutable_data_ptr());
  }
  if (accumulator != nullptr) to.push_back(accumulator->mutable_data_ptr());
  call.Run({from.data(), from.size()}, {to.data(), to.size()});
  return outputs;
}

std::vector<at::Tensor> RunFused(at::TensorList inputs, std::string_view text) {
  return Run(nullptr, inputs, text);
}

std::vector<at::Tensor> RunFusedAccumulate(at::Tensor& accumulator, at::TensorList inputs,
                                           std::string_view text) {
  return Run(&accumulator, inputs, text);
}

TORCH_LIBRARY_FRAGMENT(penstock, library) {
  library.def("fused(Tensor[] inputs, str kernel) -> Tensor[]");
  library.def("fused_gather(Tensor(a!) gathered, Tensor[] inputs, str kernel) -> Tensor[]");
}
TORCH_LIBRARY_IMPL(penstock, CPU, library) {
  library.impl("fused", RunFused);
  library.impl("fused_gather", RunFusedAccumulate);
}
TORCH_LIBRARY_IMPL(penstock, CUDA, library) { library.impl("fused", RunFused); }

}  // namespace

c10::OperatorHandle FusedOp() {
  return c10::Dispatcher::singleton().findSchemaOrThrow("penstock::fused", "");
}

c10::OperatorHandle FusedAccumulateOp() {
  return c10::Dispatcher::singleton().findSchemaOrThrow("penstock::fused_gather", "");
}

const std::string* FusedKernelText(const Node& node) {
  const std::string& name = node.op.operator_name().name;
  if (name != "penstock::fused" && name != "penstock::fused_gather") return nullptr;
  return &std::get<c10::IValue>(node.arguments.back()).toStringRef();
}

Status LoadKernelsOf(std::initializer_list<const Graph*> graphs, c10::Device device) {
  std::vector<std::string> texts;
  for (const Graph* graph : graphs) {
    for (const Node& node : graph->nodes) {
      if (const std::string* text = FusedKernelText(node)) texts.push_back(*text);
    }
  }
  return FusedCall::Load(texts, device);
}

}  // namespace penstock
