#include "graph/capture/recorder.h"

#include <ATen/core/enum_tag.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/result.h"
#include "graph/capture/capture_error.h"
#include "graph/capture/constant_masks.h"
#include "graph/capture/foreign_scope.h"
#include "graph/capture/op_forms.h"
#include "graph/capture/refused_ops.h"
#include "graph/capture/shapes_only.h"
#include "graph/capture/varying_rows.h"
#include "graph/ir/graph_tools.h"
#include "graph/ops/module_scope.h"

namespace penstock {
namespace {

using c10::IValue;
using torch::jit::Stack;

struct StopAfter {
  std::size_t node = 0;
  std::string why;  // empty: captures do not stop
};
thread_local StopAfter stop_after;

std::string NameOf(const c10::OperatorHandle& op) { return c10::toString(op.operator_name()); }

// Calls visit for each tensor of a result or an argument, with lists flattened. Calls it once with
// an undefined tensor if the value is not a tensor.
template <class Visit>
void ForEachTensor(const IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& each : value.toTensorVector()) visit(each);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector()) {
      visit(each.value_or(at::Tensor()));
    }
  } else {
    visit(at::Tensor());
  }
}

bool MutatesSeveral(const c10::FunctionSchema& schema) {
  int writes = 0;
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) ++writes;
  }
  return writes > 1;
}

// Hides the recorder's own calls from the dispatch modes of Python (selective checkpoints), which
// would see ops that the captured code does not call.
class OwnCalls {
  const c10::impl::ExcludeDispatchKeyGuard no_modes_{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
};

at::Tensor CallForTensor(const c10::OperatorHandle& op, Stack stack) {
  if (ShapesOnly* shapes = ShapesOnly::Current()) {
    shapes->Run(op, &stack);
  } else {
    op.callBoxed(stack);
  }
  return stack.back().toTensor();
}

// Returns a tensor of all memory that the tensor may share with others, which code may read later.
at::Tensor WholeMemory(const at::Tensor& tensor) {
  const c10::impl::ExcludeDispatchKeyGuard no_capture(c10::DispatchKey::Fake);
  const at::Tensor plain = tensor.detach();
  const auto item = static_cast<std::int64_t>(plain.element_size());
  const std::int64_t count = static_cast<std::int64_t>(plain.storage().nbytes()) / item;
  if (plain.storage_offset() == 0 && plain.numel() == count && plain.is_non_overlapping_and_dense())
    return plain;
  return plain.as_strided({count}, {1}, 0);
}

// Such ops read the shape of their first argument, not its values.
bool ReadsOnlyShape(const Node& node) {
  const std::string_view name = node.op.operator_name().name;
  return name.ends_with("_like") || name.starts_with("aten::new_");
}

}  // namespace

void StopCaptureAfter(std::size_t node, std::string why) { stop_after = {node, std::move(why)}; }

ValueId Recorder::Define(const at::Tensor& tensor, bool may_mutate) {
  const ValueId id = graph_.AddValue({TypeOf(tensor), kNoValue, 0});
  memory_.insert_or_assign(tensor.storage().unsafeGetStorageImpl(), Memory{id, tensor, may_mutate});
  return id;
}

void Recorder::NoteForeign(ValueId id, const at::Tensor& tensor) {
  if (foreign_.contains(id)) return;
  std::string refusal = ForeignScope::JudgementOf(tensor).refusal;
  if (refusal.empty()) return;
  foreign_.emplace(id, std::move(refusal));
  constants_.erase(id);
}

void Recorder::BindForeign(const at::Tensor& tensor) {
  ForeignTensor judgement = ForeignScope::JudgementOf(tensor);
  const at::Tensor whole = WholeMemory(tensor);
  const BoundKind kind = judgement.is_followed ? BoundKind::kBuffer : BoundKind::kConstant;
  const ValueId id = DefineBound(whole, {kNoValue, kind, -1, "", whole});
  if (!judgement.refusal.empty()) {
    foreign_.emplace(id, std::move(judgement.refusal));
  } else if (!judgement.is_followed) {
    constants_.insert(id);
  }
}

void Recorder::RejectForeign(std::span<const ValueId> outputs) const {
  std::unordered_set<ValueId> needed;
  const auto need = [&](ValueId id) {
    if (id == kNoValue || !needed.insert(graph_.Root(id)).second) return;
    const auto found = foreign_.find(graph_.Root(id));
    if (found != foreign_.end()) throw CaptureError(found->second);
  };
  if (foreign_.empty()) return;
  std::ranges::for_each(outputs, need);
  for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
    const Node& node = graph_.nodes[i];
    const bool is_needed =
        std::ranges::any_of(node.outputs, [&](ValueId id) { return needed.contains(id); });
    if (is_needed && !ReadsOnlyShape(node)) ForEachInput(node, need);
  }
}

bool Recorder::Knows(const at::Tensor& tensor) const {
  if (tensor.is_nested() || tensor.layout() != c10::kStrided || !tensor.has_storage()) {
    Reject("the stage uses a tensor that is not a plain strided tensor ({})", tensor.toString());
  }
  return memory_.contains(tensor.storage().unsafeGetStorageImpl());
}

bool Recorder::IsBound(ValueId id) const {
  return std::ranges::any_of(graph_.bound, [&](const Bound& bound) { return bound.value == id; });
}

ValueId Recorder::DefineInput(const at::Tensor& tensor) {
  if (Knows(tensor)) Reject("two inputs or parameters of the stage share memory");
  const ValueId id = Define(tensor, /*may_mutate=*/false);
  graph_.inputs.push_back(id);
  return id;
}

ValueId Recorder::DefineBound(const at::Tensor& tensor, Bound bound) {
  if (Knows(tensor)) Reject("two inputs or parameters of the stage share memory");
  bound.value = Define(tensor, /*may_mutate=*/false);
  graph_.bound.push_back(std::move(bound));
  return graph_.bound.back().value;
}

Recorder::~Recorder() {
  const at::NoGradGuard no_gradients;
  const c10::impl::ExcludeDispatchKeyGuard no_capture(c10::DispatchKey::Fake);
  for (auto& [buffer, content] : saved_) buffer.copy_(content);
}

void Recorder::DefineBuffer(const at::Tensor& tensor, const std::string& name) {
  if (Knows(tensor)) return;  // tied to a parameter or another buffer
  const Bound bound{kNoValue, BoundKind::kBuffer, -1, name, tensor.detach()};
  const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  buffers_[storage] = DefineBound(tensor, bound);
  memory_.at(storage).may_mutate = true;
}

bool Recorder::IsUpdated(const at::Tensor& buffer) const {
  const c10::StorageImpl* const storage = buffer.storage().unsafeGetStorageImpl();
  const auto found = buffers_.find(storage);
  return found != buffers_.end() && memory_.at(storage).root != found->second;
}

void Recorder::SaveBuffer(const at::Tensor& tensor) {
  const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const auto found = buffers_.find(storage);
  if (found == buffers_.end() || memory_.at(storage).root != found->second) return;
  const at::Tensor whole = memory_.at(storage).tensor.detach();
  saved_.emplace_back(whole, whole.clone());
}

ValueId Recorder::Use(const at::Tensor& tensor) {
  if (tensor.is_conj() || tensor.is_neg()) return UseResolved(tensor);
  if (!Knows(tensor)) BindForeign(tensor);
  BindFilled(tensor.storage().unsafeGetStorageImpl());
  const Memory& memory = memory_.at(tensor.storage().unsafeGetStorageImpl());
  // A constant that shares its memory with a tensor that requires a gradient.
  if (tensor.requires_grad() && constants_.contains(memory.root) && IsBound(memory.root)) {
    NoteForeign(memory.root, tensor);
  }
  const auto item = static_cast<std::int64_t>(tensor.element_size());
  const std::int64_t bytes =
      tensor.storage_offset() * item -
      memory.tensor.storage_offset() * static_cast<std::int64_t>(memory.tensor.element_size());
  TensorValue view{TypeOf(tensor), memory.root, bytes / item};
  const TensorType& root = graph_.value(memory.root).type;
  view.type.rows_vary = root.rows_vary;
  if (view.type == root && bytes == 0) return memory.root;
  if (root.rows_vary) {
    Reject("the stage views a tensor whose number of rows depends on the routing");
  }

  const auto root_item = static_cast<std::int64_t>(c10::elementSize(root.dtype));
  if (bytes < 0 || bytes % item != 0 ||
      bytes + ExtentOf(view.type) * item > ExtentOf(root) * root_item) {
    Reject("the stage accesses memory outside the tensor that it was given (as_strided?)");
  }
  ViewKey key{memory.root, view.view_offset, view.type.dtype, view.type.sizes, view.type.strides};
  const auto found = views_.find(key);
  if (found != views_.end()) return found->second;
  const ValueId id = graph_.AddValue(std::move(view));
  views_.emplace(std::move(key), id);
  return id;
}

void Recorder::BindFilled(const c10::StorageImpl* storage) {
  if (empty_.erase(storage) == 0 || ShapesOnly::Current() != nullptr) return;
  Memory& memory = memory_.at(storage);
  Bound bound{kNoValue, BoundKind::kConstant, -1, "", memory.tensor.detach().clone()};
  memory.root = bound.value = graph_.AddValue({TypeOf(memory.tensor), kNoValue, 0});
  graph_.bound.push_back(std::move(bound));
  constants_.insert(memory.root);
}

ValueId Recorder::UseResolved(const at::Tensor& tensor) {
  const bool conjugate = tensor.is_conj();
  const c10::OperatorHandle op = FindOp(conjugate ? "aten::_conj_physical" : "aten::neg", "");
  const at::Tensor memory = conjugate ? tensor.conj() : tensor._neg_view();
  const ValueId argument = Use(memory);
  const at::Tensor result = CallForTensor(op, {memory});
  const ValueId value = graph_.AddValue({TypeOf(result), kNoValue, 0});
  graph_.nodes.push_back({op, {argument}, {value}, phase_, ModuleScope::Current()});
  NoteConstants(graph_.nodes.back());
  return value;
}

void Recorder::BindUnknown(const Stack& arguments) {
  for (const IValue& argument : arguments) {
    ForEachTensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.defined() && !Knows(tensor)) Use(tensor);
    });
  }
}

bool Recorder::IsConstant(const at::Tensor& tensor) {
  BindUnknown({tensor});
  return AreConstant({tensor});
}

// Unknown tensors are constants unless they are trained.
bool Recorder::AreConstant(const Stack& arguments) const {
  bool constant = true;
  for (const IValue& argument : arguments) {
    ForEachTensor(argument, [&](const at::Tensor& tensor) {
      constant = constant && !(tensor.defined() && tensor.requires_grad());
      if (!tensor.defined() || !tensor.has_storage() || !Knows(tensor)) return;
      constant =
          constant && constants_.contains(memory_.at(tensor.storage().unsafeGetStorageImpl()).root);
    });
  }
  return constant;
}

void Recorder::NoteConstants(const Node& node) {
  bool constant = !IsRandom(node);
  ForEachInput(node,
               [&](ValueId id) { constant = constant && constants_.contains(graph_.Root(id)); });
  if (!constant) return;
  for (const ValueId output : node.outputs) {
    if (output != kNoValue) constants_.insert(output);
  }
}

Argument Recorder::ToArgument(const IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) return Use(value.toTensor());
  if (value.isGenerator()) return IValue();  // a run passes its own generator (ToArguments)
  if (value.isTensorList()) {
    std::vector<ValueId> ids;
    for (const at::Tensor& each : value.toTensorVector()) {
      ids.push_back(each.defined() ? Use(each) : kNoValue);
    }
    return ids;
  }
  if (value.isOptionalTensorList()) {
    std::vector<ValueId> ids;
    for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector()) {
      ids.push_back(each && each->defined() ? Use(*each) : kNoValue);
    }
    return ids;
  }
  return value;
}

void Recorder::Run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(schema.arguments().size()),
                  stack->end());
  // inplace_view ops (squeeze_) change the shape of a tensor but no memory, so they are not
  // recorded.
  const bool writes = MutatedArgument(schema) >= 0;
  const bool mutates = writes && !op.hasTag(at::Tag::inplace_view);
  if (mutates && (MutatesSeveral(schema) || MutatedArgument(schema) != 0)) {
    return RunOut(op, keys, stack);
  }
  {
    const OwnCalls own;
    if (RecordBatchNorm(op, stack)) return;
    RejectUnrepeatable(op, arguments);
    ReplaceConstantMasks(op, arguments,
                         [this](const at::Tensor& mask) { return IsConstant(mask); });
    std::ranges::copy(arguments, stack->end() - std::ssize(arguments));
    if (op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape)) {
      BindUnknown(arguments);
    }
    if (!AreConstant(arguments)) RejectDataDependent(op, arguments);
    NumberRandomOp(op, arguments);
    if (mutates) RecordInPlace(op, arguments);
  }
  RunKernel(op, keys, stack);
  if (writes) return;
  const OwnCalls own;
  const std::size_t count = schema.returns().size();
  RecordResults(op, arguments, c10::ArrayRef<IValue>(*stack).slice(stack->size() - count, count));
  if (!stop_after.why.empty() && graph_.nodes.size() > stop_after.node) {
    Reject("{}", stop_after.why);
  }
}

void Recorder::RunOut(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const std::optional<c10::OperatorHandle> plain = WithoutOut(op);
  if (!plain) Reject("{} writes into its arguments, which a graph cannot contain", NameOf(op));
  const at::Tensor out = stack->back().toTensor();
  stack->pop_back();
  Run(*plain, keys, stack);
  const at::Tensor result = stack->back().toTensor();
  if (result.sizes() != out.sizes() || result.scalar_type() != out.scalar_type()) {
    Reject("{} writes into a tensor of another shape or dtype than the result's", NameOf(op));
  }
  Stack copy = {out, result, false};
  Run(FindOp("aten::copy_", ""), keys, &copy);
  stack->back() = out;
}

// ATen's op also writes the running statistics, which its schema does not say. The functional form
// returns them after the results.
bool Recorder::RecordBatchNorm(const c10::OperatorHandle& op, Stack* stack) {
  static const c10::OperatorName name("aten::native_batch_norm", "");
  static const c10::OperatorHandle functional = c10::Dispatcher::singleton().findSchemaOrThrow(
      "aten::_native_batch_norm_legit_functional", "");
  constexpr std::size_t kRunningMean = 3, kRunningVar = 4, kTraining = 5, kResults = 3;
  if (!(op.operator_name() == name)) return false;
  const std::size_t count = op.schema().arguments().size();
  const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  const at::Tensor mean = arguments[kRunningMean].toOptional<at::Tensor>().value_or(at::Tensor());
  const at::Tensor var = arguments[kRunningVar].toOptional<at::Tensor>().value_or(at::Tensor());
  if (!mean.defined() || !var.defined() || !arguments[kTraining].toBool()) return false;
  for (const at::Tensor& statistic : {mean, var}) {
    if (!Knows(statistic) || !memory_.at(statistic.storage().unsafeGetStorageImpl()).may_mutate) {
      Reject("batch normalization updates running statistics that are not buffers of the stage");
    }
  }
  Stack results = arguments;
  functional.callBoxed(results);
  RecordResults(functional, arguments, results);
  const std::vector<ValueId>& outputs = graph_.nodes.back().outputs;
  const ValueId new_mean = outputs[kResults], new_var = outputs[kResults + 1];
  Rebind(mean, results[kResults].toTensor(), new_mean);
  Rebind(var, results[kResults + 1].toTensor(), new_var);
  stack->erase(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  stack->insert(stack->end(), results.begin(), results.begin() + kResults);
  return true;
}

bool Recorder::RowsVary(const Node& node) const {
  const Result<bool> vary = ResultRowsVary(node, graph_);
  if (!vary) throw CaptureError(vary.error().line());
  return *vary;
}

void Recorder::RecordResults(const c10::OperatorHandle& op, const Stack& arguments,
                             c10::ArrayRef<IValue> results) {
  BindUnknown(arguments);  // Results on their memory are then views of them.
  bool has_new_memory = false;
  for (const IValue& result : results) {
    ForEachTensor(result, [&](const at::Tensor& tensor) {
      has_new_memory = has_new_memory || (tensor.defined() && !Knows(tensor));
    });
  }
  if (!has_new_memory) return;  // only views, which Use() resolves
  Node node{op, ToArguments(op, arguments), {}, phase_, ModuleScope::Current()};
  const bool vary = RowsVary(node);
  const bool is_empty = op.operator_name().name.starts_with("aten::empty") ||
                        op.operator_name().name.starts_with("aten::new_empty");
  for (const IValue& result : results) {
    ForEachTensor(result, [&](const at::Tensor& tensor) {
      const bool fresh = tensor.defined() && !Knows(tensor);
      node.outputs.push_back(fresh ? Define(tensor, /*may_mutate=*/true) : kNoValue);
      if (!fresh) return;
      graph_.values[node.outputs.back()].type.rows_vary = vary;
      if (is_empty) empty_.insert(tensor.storage().unsafeGetStorageImpl());
    });
  }
  NoteConstants(node);
  graph_.nodes.push_back(std::move(node));
}

void Recorder::RecordInPlace(const c10::OperatorHandle& op, const Stack& arguments) {
  const at::Tensor& mutated = arguments.front().toTensor();
  if (!Knows(mutated) || !memory_.at(mutated.storage().unsafeGetStorageImpl()).may_mutate) {
    Reject(
        "{} mutates an input or a parameter of the stage, or a tensor that is none of its buffers",
        NameOf(op));
  }
  SaveBuffer(mutated);
  empty_.erase(mutated.storage().unsafeGetStorageImpl());
  const std::optional<c10::OperatorHandle> form = FunctionalForm(op);
  if (!form) {
    Reject("{} mutates a tensor and has no out-of-place form; use an op that returns a new tensor",
           NameOf(op));
  }
  const c10::OperatorHandle& functional = *form;
  const at::Tensor result = CallForTensor(functional, arguments);
  if (result.scalar_type() != mutated.scalar_type() || result.sizes() != mutated.sizes()) {
    Reject("the results of {} and {} differ in dtype or shape; use an op that returns a new tensor",
           NameOf(op), NameOf(functional));
  }
  Node node{functional, ToArguments(functional, arguments), {}, phase_, ModuleScope::Current()};
  const ValueId value = graph_.AddValue({TypeOf(result), kNoValue, 0});
  graph_.values[value].type.rows_vary = RowsVary(node);
  node.outputs = {value};
  NoteConstants(node);
  graph_.nodes.push_back(std::move(node));
  Rebind(mutated, result, value);
}

// Makes the memory of `mutated` stand for `value`, the value of `result`.
void Recorder::Rebind(const at::Tensor& mutated, const at::Tensor& result, ValueId value) {
  Memory& memory = memory_.at(mutated.storage().unsafeGetStorageImpl());
  if (mutated.numel() == memory.tensor.numel() && mutated.is_non_overlapping_and_dense() &&
      TypeOf(result) == TypeOf(mutated) &&
      mutated.storage_offset() == memory.tensor.storage_offset()) {
    memory.root = value;
    memory.tensor = mutated;
    return;
  }
  // Only a part of the memory changed: the new value is the old one with that part overwritten.
  if (memory.tensor.storage_offset() != 0) Reject("the stage mutates a part of a view");
  static const c10::OperatorHandle scatter =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::as_strided_scatter", "");
  const std::vector<IValue> region = {mutated.sizes(), mutated.strides(), mutated.storage_offset()};
  const at::Tensor whole =
      CallForTensor(scatter, {memory.tensor, mutated, region[0], region[1], region[2]});
  if (TypeOf(whole) != TypeOf(memory.tensor)) Reject("the stage mutates a part of a view");
  const ValueId root = graph_.AddValue({TypeOf(whole), kNoValue, 0});
  graph_.nodes.push_back({scatter,
                          {memory.root, value, region[0], region[1], region[2]},
                          {root},
                          phase_,
                          ModuleScope::Current()});
  NoteConstants(graph_.nodes.back());
  memory.root = root;
}

}  // namespace penstock
