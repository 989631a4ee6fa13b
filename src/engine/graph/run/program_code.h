// ProgramCode: the flat arrays of a GraphProgram, written by Lower and run by GraphProgram::Run.
#pragma once

#include <ATen/core/stack.h>

#include <vector>

#include "base/index.h"
#include "graph/kernel/fused_call.h"
#include "graph/run/arena.h"
#include "graph/run/interpret.h"

namespace penstock {

enum class OperandKind : std::uint8_t {
  kCopy,          // slots[index]
  kMove,          // slots[index], at its last use
  kConstant,      // constants[index]
  kRandomOp,      // the generator, seeded for random_ops[index]
  kList,          // the next `index` operands, as a list of tensors
  kOptionalList,  // the same, as a list of optional tensors
  kAbsent,        // an absent tensor in a list
};
struct Operand {
  OperandKind kind;
  std::int32_t index;
};

// A half-open range of one of the flat arrays.
struct CodeRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

struct Instruction {
  std::int32_t op = -1;  // ops[op]; -1 for a view
  std::int32_t view = -1;
  CodeRange operands;
  CodeRange outputs;         // slots; -1 drops the result
  CodeRange blocks;          // of the arena, for results
  CodeRange releases;        // slots to empty afterwards
  CodeRange view_releases;   // views to detach from their memory afterwards
  bool lists = false;        // whether a result is a list of tensors
  std::int32_t kernel = -1;  // kernels[kernel], which is called directly instead of ops[op]
};

// A view. Its tensor is created once, and each run sets its storage to the root's.
struct CodeView {
  at::Tensor tensor;
  std::int32_t slot;
  std::int32_t source;  // slot of the root
  std::int64_t offset;
};

struct ProgramCode {
  std::vector<Instruction> instructions;
  std::vector<c10::OperatorHandle> ops;
  std::vector<FusedCall> kernels;
  std::vector<Operand> operands;
  std::vector<std::int32_t> outputs;   // see Instruction
  std::vector<std::int32_t> releases;  // see Instruction; slots and indices in `views`
  std::vector<c10::IValue> constants;
  std::vector<std::int64_t> random_ops;  // numbers
  at::Generator generator;
  std::uint64_t seed = 0;  // of the run
  std::vector<CodeView> views;
  std::vector<PlannedBlock> blocks;
  std::int64_t arena_bytes = 0;
  std::int64_t peak_bytes = 0;
  std::vector<std::pair<int, GroupEnd*>> groups;  // of the binding, if a node is a collective

  struct Output {
    std::int32_t slot = -1;
    bool last = false;
    bool is_view = false;
    TensorValue view;
  };
  std::vector<std::int32_t> input_slots;  // -1: never read
  std::vector<Output> output_slots;
  std::int32_t bound_slots = 0;  // number of slots, the first ones, that are never emptied

  std::vector<c10::IValue> slots;
  torch::jit::Stack stack;
  std::vector<const void*> kernel_inputs;
  std::vector<void*> kernel_outputs;
  c10::Storage nothing;  // the storage of views between runs

  void Call(const Instruction& instruction, Arena& arena);
  void CallKernel(const Instruction& instruction, Arena& arena);
  std::span<const PlannedBlock> BlocksOf(const Instruction& instruction) const {
    return std::span(blocks).subspan(instruction.blocks.begin,
                                     Index(instruction.blocks.end - instruction.blocks.begin));
  }
  void SetView(const CodeView& view);
  // Empties all slots except the bound ones.
  void Clear();
};

// Fills `code` from the graph: assigns slots to values, creates views of bound values and finds
// last uses.
void Lower(const Graph& graph, const GraphBinding& binding, ProgramCode& code);

}  // namespace penstock
