#include "graph/capture/refused_ops.h"

#include <ATen/core/enum_tag.h>

#include "graph/capture/capture_error.h"
#include "graph/capture/constant_masks.h"

namespace penstock {
namespace {

// A seeded op with dropout 0 draws no numbers.
bool DropoutIsOff(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments) {
  const auto index = schema.argumentIndexWithName("dropout_p");
  if (!index) return false;
  const c10::IValue& p = arguments[*index];
  return p.isDouble() && p.toDouble() == 0.0;
}

}  // namespace

bool TakesGenerator(const c10::FunctionSchema& schema) {
  return schema.argumentIndexWithName("generator").has_value();
}

void RejectUnrepeatable(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  const c10::FunctionSchema& schema = op.schema();
  if (op.hasTag(at::Tag::nondeterministic_seeded) && !DropoutIsOff(schema, arguments) &&
      !TakesGenerator(schema)) {
    Reject(
        "the stage calls the random op {}, which takes no generator, so that a graph cannot repeat "
        "it; use at::dropout or bernoulli",
        c10::toString(op.operator_name()));
  }
  if (op.hasTag(at::Tag::maybe_aliasing_or_mutating)) {
    Reject("{} may mutate its arguments (running statistics?), which a graph cannot contain",
           c10::toString(op.operator_name()));
  }
}

void RejectDataDependent(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  if (op.hasTag(at::Tag::data_dependent_output)) {
    Reject(
        "the stage reads a value out of a tensor ({}), which a graph cannot repeat; keep the value "
        "in a tensor",
        c10::toString(op.operator_name()));
  }
  // Its shapes depend on the lengths, which this overload takes as numbers.
  static const c10::OperatorName ctc_loss("aten::_ctc_loss", "");
  if (op.hasTag(at::Tag::dynamic_output_shape) && !IndexesByNumbers(op, arguments) &&
      !(op.operator_name() == ctc_loss)) {
    Reject("the shape of the result of {} depends on data, which a graph cannot repeat",
           c10::toString(op.operator_name()));
  }
}

}  // namespace penstock
