// Lower: converts a graph to the flat arrays that GraphProgram runs.
#include <algorithm>
#include <map>

#include "base/result.h"
#include "graph/kernel/fused_op.h"
#include "graph/ops/collective.h"
#include "graph/run/memory_plan.h"
#include "graph/run/program_code.h"
#include "graph/run/view.h"

namespace penstock {
namespace {

class Lowering {
 public:
  Lowering(const Graph& graph, const GraphBinding& binding, ProgramCode& code)
      : graph_(graph),
        binding_(binding),
        code_(code),
        plan_(PlanFor(graph, binding.device)),
        slot_of_(graph.values.size(), -1) {
    if (std::ranges::any_of(graph.nodes, IsCollective)) code_.groups = binding.groups;
    code_.generator = binding.generator;
    code_.arena_bytes = plan_.arena_bytes;
    code_.peak_bytes = plan_.peak_bytes;
    for (const Bound& bound : graph.bound) Bind(bound, binding);
    BindViews();
    code_.bound_slots = static_cast<std::int32_t>(code_.slots.size());
  }

  void Lower() {
    for (const ValueId input : graph_.inputs) code_.input_slots.push_back(NewSlot(input));
    for (const Node& node : graph_.nodes) LowerNode(node);
    for (const ValueId output : graph_.outputs) LowerOutput(output);
    MarkLastUses();
    for (std::int32_t& slot : code_.input_slots) {
      if (!last_use_.contains(slot)) slot = -1;
    }
    for (std::int32_t& slot : code_.outputs) {
      if (slot >= 0 && !last_use_.contains(slot)) slot = -1;
    }
    code_.stack.reserve(64);
  }

 private:
  // Other devices allocate by stream, not from an arena of the thread.
  static MemoryPlan PlanFor(const Graph& graph, c10::Device device) {
    MemoryPlan plan = PlanMemory(graph);
    if (device.is_cpu()) return plan;
    plan.arena_bytes = 0;
    std::ranges::fill(plan.offsets, -1);
    return plan;
  }

  std::int32_t NewSlot(ValueId id) {
    const auto slot = static_cast<std::int32_t>(code_.slots.size());
    code_.slots.emplace_back();
    slot_of_[id] = slot;
    return slot;
  }
  std::int32_t& slot_of(ValueId id) { return slot_of_[id]; }
  bool IsBound(std::int32_t slot) const { return slot < code_.bound_slots; }

  void Bind(const Bound& bound, const GraphBinding& binding) {
    const at::Tensor& tensor = BoundTensor(bound, binding);
    PENSTOCK_CHECK(TypeOf(tensor) == graph_.value(bound.value).type,
                   "%{} of graph {} is bound to a tensor of another type", bound.value,
                   graph_.name);
    // Every op takes numbers of the CPU, and nothing else of it.
    PENSTOCK_CHECK(!tensor.defined() || tensor.dim() == 0 || tensor.device() == binding.device,
                   "%{} of graph {} is on {}, but the graph runs on {}", bound.value, graph_.name,
                   tensor.device().str(), binding.device.str());
    code_.slots[NewSlot(bound.value)] = tensor;
  }

  // Views of bound values never change, so they are created once.
  void BindViews() {
    const auto bind = [&](ValueId id) {
      const ValueId root = graph_.Root(id);
      if (root == id || slot_of(root) < 0 || slot_of(id) >= 0) return;
      const at::Tensor& source = code_.slots[slot_of(root)].toTensor();
      at::Tensor view = MakeView(source, graph_.value(id));
      code_.slots[NewSlot(id)] = std::move(view);
    };
    for (const Node& node : graph_.nodes) ForEachInput(node, bind);
  }

  std::int32_t Now() const { return static_cast<std::int32_t>(code_.instructions.size()); }
  std::int32_t Use(std::int32_t slot) {
    last_use_[slot] = Now();
    return slot;
  }

  // Returns the slot of `id`. Appends an instruction that creates the view if necessary.
  std::int32_t SlotFor(ValueId id) {
    if (slot_of(id) >= 0) return slot_of(id);
    const TensorValue& value = graph_.value(id);
    const std::int32_t source = slot_of(value.view_of);
    Instruction instruction;
    instruction.view = static_cast<std::int32_t>(code_.views.size());
    Use(source);
    code_.instructions.push_back(instruction);
    at::Tensor tensor = MakeView(EmptySource(value), {value.type, kNoValue, 0});
    const std::int32_t slot = NewSlot(id);
    view_of_slot_[slot] = instruction.view;
    code_.slots[slot] = tensor;
    code_.views.push_back({std::move(tensor), slot, source, value.view_offset});
    return slot;
  }

  static c10::DispatchKey KeyOf(c10::Device device) {
    return at::TensorOptions().device(device).computeDispatchKey();
  }

  at::Tensor EmptySource(const TensorValue& value) const {
    return at::detail::make_tensor<c10::TensorImpl>(c10::Storage(code_.nothing),
                                                    c10::DispatchKeySet(KeyOf(binding_.device)),
                                                    c10::scalarTypeToTypeMeta(value.type.dtype));
  }

  void LowerNode(const Node& node) {
    // Views are instructions, so they precede the node's instruction.
    ForEachInput(node, [&](ValueId id) { SlotFor(id); });
    Instruction instruction;
    instruction.op = static_cast<std::int32_t>(code_.ops.size());
    code_.ops.push_back(node.op);
    instruction.operands.begin = static_cast<std::int32_t>(code_.operands.size());
    for (std::size_t i = 0; i < node.arguments.size(); ++i) {
      LowerArgument(node.arguments[i], *node.op.schema().arguments()[i].type());
    }
    instruction.operands.end = static_cast<std::int32_t>(code_.operands.size());
    instruction.outputs.begin = static_cast<std::int32_t>(code_.outputs.size());
    for (const ValueId output : node.outputs) {
      code_.outputs.push_back(output == kNoValue ? -1 : NewSlot(output));
    }
    instruction.outputs.end = static_cast<std::int32_t>(code_.outputs.size());
    instruction.blocks.begin = static_cast<std::int32_t>(code_.blocks.size());
    for (const ValueId output : node.outputs) {
      if (output == kNoValue || plan_.offsets[output] < 0) continue;
      code_.blocks.push_back({StorageBytes(graph_.value(output).type), plan_.offsets[output]});
    }
    instruction.blocks.end = static_cast<std::int32_t>(code_.blocks.size());
    for (const c10::Argument& result : node.op.schema().returns()) {
      instruction.lists =
          instruction.lists || result.type()->isSubtypeOf(*c10::ListType::ofTensors());
    }
    if (const std::string* text = FusedKernelText(node)) {
      if (const FusedCall call = FusedCall::Find(*text, binding_.device)) {
        instruction.kernel = static_cast<std::int32_t>(code_.kernels.size());
        code_.kernels.push_back(call);
      }
    }
    code_.instructions.push_back(instruction);
  }

  void LowerArgument(const Argument& argument, const c10::Type& type) {
    if (const auto* id = std::get_if<ValueId>(&argument)) {
      code_.operands.push_back({OperandKind::kCopy, Use(slot_of(*id))});
    } else if (const auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
      const bool plain = type.isSubtypeOf(*c10::ListType::ofTensors());
      code_.operands.push_back({plain ? OperandKind::kList : OperandKind::kOptionalList,
                                static_cast<std::int32_t>(list->size())});
      for (const ValueId each : *list) {
        code_.operands.push_back(each == kNoValue
                                     ? Operand{OperandKind::kAbsent, -1}
                                     : Operand{OperandKind::kCopy, Use(slot_of(each))});
      }
    } else if (const auto random_op = RandomOpOf(std::get<c10::IValue>(argument), type, binding_)) {
      code_.operands.push_back(
          {OperandKind::kRandomOp, static_cast<std::int32_t>(code_.random_ops.size())});
      code_.random_ops.push_back(*random_op);
    } else {
      code_.operands.push_back(
          {OperandKind::kConstant, static_cast<std::int32_t>(code_.constants.size())});
      code_.constants.push_back(RunConstant(std::get<c10::IValue>(argument), type, binding_));
    }
  }

  // A view leaves the run as a new tensor, because the next run reuses the one in the slot.
  void LowerOutput(ValueId id) {
    ProgramCode::Output output;
    if (id != kNoValue) {
      const ValueId root = graph_.Root(id);
      output.slot = Use(slot_of(root));
      output.is_view = root != id;
      output.view = graph_.value(id);
    }
    code_.output_slots.push_back(std::move(output));
  }

  // Moves or releases every slot at its last use.
  void MarkLastUses() {
    std::map<std::int32_t, std::vector<std::int32_t>> dying;  // by instruction
    for (const auto& [slot, last] : last_use_) {
      if (!IsBound(slot)) dying[last].push_back(slot);
    }
    for (std::int32_t i = 0; i < Now(); ++i) {
      Instruction& instruction = code_.instructions[i];
      instruction.releases.begin = static_cast<std::int32_t>(code_.releases.size());
      for (const std::int32_t slot : dying[i]) {
        if (!view_of_slot_.contains(slot) && !MoveOnce(instruction, slot)) {
          code_.releases.push_back(slot);
        }
      }
      instruction.releases.end = static_cast<std::int32_t>(code_.releases.size());
      instruction.view_releases.begin = instruction.releases.end;
      for (const std::int32_t slot : dying[i]) {
        if (view_of_slot_.contains(slot)) code_.releases.push_back(view_of_slot_.at(slot));
      }
      instruction.view_releases.end = static_cast<std::int32_t>(code_.releases.size());
    }
    // Outputs: the last one of a slot moves it.
    for (std::size_t i = code_.output_slots.size(); i-- > 0;) {
      ProgramCode::Output& output = code_.output_slots[i];
      const bool again = std::any_of(
          code_.output_slots.begin() + static_cast<std::ptrdiff_t>(i) + 1, code_.output_slots.end(),
          [&](const auto& other) { return other.slot == output.slot; });
      output.last = output.slot >= 0 && !IsBound(output.slot) && !again;
    }
  }

  // Returns whether the instruction reads the slot exactly once, so that the operand can move the
  // value.
  bool MoveOnce(const Instruction& instruction, std::int32_t slot) {
    Operand* found = nullptr;
    for (std::int32_t i = instruction.operands.begin; i < instruction.operands.end; ++i) {
      Operand& operand = code_.operands[i];
      if (operand.kind != OperandKind::kCopy || operand.index != slot) continue;
      if (found != nullptr) return false;
      found = &operand;
    }
    if (found == nullptr) return false;
    found->kind = OperandKind::kMove;
    return true;
  }

  const Graph& graph_;
  const GraphBinding& binding_;
  ProgramCode& code_;
  const MemoryPlan plan_;
  std::vector<std::int32_t> slot_of_;                  // by value
  std::map<std::int32_t, std::int32_t> last_use_;      // by slot: an instruction, or their count
  std::map<std::int32_t, std::int32_t> view_of_slot_;  // by slot: index in code.views
};

}  // namespace

void Lower(const Graph& graph, const GraphBinding& binding, ProgramCode& code) {
  Lowering(graph, binding, code).Lower();
}

}  // namespace penstock
