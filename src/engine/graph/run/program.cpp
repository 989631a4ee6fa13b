// GraphProgram: the interpreter loop.
#include <ATen/EmptyTensor.h>
#include <c10/core/InferenceMode.h>

#include "base/index.h"
#include "graph/ops/collective_endpoint.h"
#include "graph/ops/random_ops.h"
#include "graph/run/program_code.h"
#include "graph/run/view.h"

namespace penstock {
namespace {

using c10::IValue;

IValue TakeOperand(const Operand& operand, std::vector<IValue>& slots) {
  IValue& slot = slots[operand.index];
  return operand.kind == OperandKind::kMove ? std::move(slot) : slot;
}

// Reserves memory in the thread's arena for a run, and clears the expected blocks after it.
struct ArenaUse {
  Arena& arena = Arena::OfThread();

  explicit ArenaUse(std::int64_t bytes) { arena.Reserve(bytes); }
  ~ArenaUse() { arena.Expect({}); }
  ArenaUse(const ArenaUse&) = delete;
  ArenaUse& operator=(const ArenaUse&) = delete;
};

// The groups of a program, joined for a run.
class JoinedGroups {
 public:
  explicit JoinedGroups(std::span<const std::pair<int, GroupEnd*>> groups) : groups_(groups) {
    for (const auto& [number, end] : groups_) JoinGroup(number, *end);
  }
  ~JoinedGroups() {
    for (const auto& [number, end] : groups_) LeaveGroup(number);
  }
  JoinedGroups(const JoinedGroups&) = delete;
  JoinedGroups& operator=(const JoinedGroups&) = delete;

 private:
  std::span<const std::pair<int, GroupEnd*>> groups_;
};

}  // namespace

void ProgramCode::Call(const Instruction& instruction, Arena& arena) {
  for (std::int32_t i = instruction.operands.begin; i < instruction.operands.end; ++i) {
    const Operand& operand = operands[i];
    switch (operand.kind) {
      case OperandKind::kCopy:
        stack.push_back(slots[operand.index]);
        break;
      case OperandKind::kMove:
        stack.push_back(std::move(slots[operand.index]));
        break;
      case OperandKind::kConstant:
        stack.push_back(constants[operand.index]);
        break;
      case OperandKind::kRandomOp:
        SeedRandomOp(generator, seed, random_ops[operand.index]);
        stack.emplace_back(generator);
        break;
      case OperandKind::kList: {
        c10::List<at::Tensor> list;
        list.reserve(operand.index);
        for (const std::int32_t end = i + operand.index; i < end;) {
          list.push_back(TakeOperand(operands[++i], slots).toTensor());
        }
        stack.push_back(std::move(list));
        break;
      }
      case OperandKind::kOptionalList: {
        c10::List<std::optional<at::Tensor>> list;
        list.reserve(operand.index);
        for (const std::int32_t end = i + operand.index; i < end;) {
          const Operand& each = operands[++i];
          if (each.kind == OperandKind::kAbsent) {
            list.push_back(std::nullopt);
          } else {
            list.push_back(TakeOperand(each, slots).toTensor());
          }
        }
        stack.push_back(std::move(list));
        break;
      }
      case OperandKind::kAbsent:
        break;
    }
  }
  arena.Expect(BlocksOf(instruction));
  ops[instruction.op].callBoxed(stack);
  std::int32_t next = instruction.outputs.begin;
  const auto keep = [&](IValue&& result) {
    const std::int32_t slot = outputs[next++];
    if (slot >= 0) slots[slot] = std::move(result);
  };
  for (IValue& result : stack) {
    if (instruction.lists && result.isTensorList()) {
      for (const at::Tensor& each : result.toTensorVector()) keep(each);
    } else {
      keep(std::move(result));
    }
  }
  stack.clear();
}

// The operands are the accumulator (if any), one list of tensors and the text of the kernel.
void ProgramCode::CallKernel(const Instruction& instruction, Arena& arena) {
  const FusedCall& call = kernels[instruction.kernel];
  kernel_inputs.clear();
  kernel_outputs.clear();
  const std::size_t begin = instruction.operands.begin;
  const std::size_t accumulates = operands[begin].kind == OperandKind::kList ? 0 : 1;
  const std::span read = std::span(operands).subspan(
      begin + accumulates + 1, Index(instruction.operands.end) - begin - accumulates - 2);
  for (const Operand& operand : read) {
    kernel_inputs.push_back(slots[operand.index].toTensor().const_data_ptr());
  }
  arena.Expect(BlocksOf(instruction));
  std::int32_t next = instruction.outputs.begin;
  for (const TensorType& type : call.kernel().outputs) {
    at::Tensor output = call.NewOutput(type);
    kernel_outputs.push_back(output.mutable_data_ptr());
    const std::int32_t slot = outputs[next++];
    if (slot >= 0) {
      slots[slot] = std::move(output);
    } else {
      stack.emplace_back(std::move(output));
    }
  }
  if (accumulates != 0) {
    const std::size_t accumulator = operands[begin].index;
    kernel_outputs.push_back(slots[accumulator].toTensor().mutable_data_ptr());
  }
  call.Run(kernel_inputs, kernel_outputs);
  stack.clear();
  for (const Operand& operand : read) {
    if (operand.kind == OperandKind::kMove) slots[operand.index] = IValue();
  }
}

void ProgramCode::SetView(const CodeView& view) {
  const at::Tensor& source = slots[view.source].toTensor();
  c10::TensorImpl* impl = view.tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(source.storage());
  impl->set_storage_offset(
      ViewStart(source, view.offset, static_cast<std::int64_t>(view.tensor.element_size())));
}

void ProgramCode::Clear() {
  stack.clear();
  for (const CodeView& view : views)
    view.tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(nothing);
  for (std::size_t i = Index(bound_slots); i < slots.size(); ++i) {
    slots[i] = IValue();
  }
  for (const CodeView& view : views) slots[view.slot] = view.tensor;
}

GraphProgram::GraphProgram(const Graph& graph, const GraphBinding& binding)
    : code_(std::make_unique<ProgramCode>()) {
  const c10::InferenceMode inference;
  code_->nothing =
      c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, binding.device),
                   nullptr, /*resizable=*/false);
  Lower(graph, binding, *code_);
}

GraphProgram::~GraphProgram() = default;
GraphProgram::GraphProgram(GraphProgram&&) noexcept = default;
GraphProgram& GraphProgram::operator=(GraphProgram&&) noexcept = default;

std::int64_t GraphProgram::peak_bytes() const { return code_->peak_bytes; }
std::int64_t GraphProgram::arena_bytes() const { return code_->arena_bytes; }
int GraphProgram::instructions() const { return static_cast<int>(code_->instructions.size()); }

void GraphProgram::Run(std::span<at::Tensor> inputs, std::span<at::Tensor> outputs) {
  const c10::InferenceMode inference;
  ProgramCode& code = *code_;
  if (!code.random_ops.empty()) code.seed = code.generator.current_seed();
  ArenaUse arena(code.arena_bytes);
  const JoinedGroups groups(code.groups);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    at::Tensor input = std::move(inputs[i]);
    const std::int32_t slot = code.input_slots[i];
    if (slot >= 0) code.slots[slot] = std::move(input);
  }
  try {
    for (const Instruction& instruction : code.instructions) {
      if (instruction.kernel >= 0) {
        code.CallKernel(instruction, arena.arena);
      } else if (instruction.op >= 0) {
        code.Call(instruction, arena.arena);
      } else {
        code.SetView(code.views[instruction.view]);
      }
      for (std::int32_t i = instruction.releases.begin; i < instruction.releases.end; ++i) {
        code.slots[code.releases[i]] = IValue();
      }
      for (std::int32_t i = instruction.view_releases.begin; i < instruction.view_releases.end;
           ++i) {
        const CodeView& view = code.views[code.releases[i]];
        view.tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(code.nothing);
      }
    }
  } catch (...) {
    code.Clear();
    throw;
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const ProgramCode::Output& output = code.output_slots[i];
    if (output.slot < 0) {
      outputs[i] = at::Tensor();
      continue;
    }
    IValue& slot = code.slots[output.slot];
    if (output.is_view) {
      outputs[i] = MakeView(slot.toTensor(), output.view);
      if (output.last) slot = IValue();
    } else {
      outputs[i] = output.last ? std::move(slot).toTensor() : slot.toTensor();
    }
  }
}

}  // namespace penstock
