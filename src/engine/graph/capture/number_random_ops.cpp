// Recorder: the numbers of random ops (random_ops.h).
#include <ATen/Context.h>
#include <ATen/core/enum_tag.h>

#include "base/index.h"
#include "graph/capture/recorder.h"
#include "graph/capture/refused_ops.h"
#include "graph/ops/random_ops.h"

namespace penstock {

namespace {

using c10::IValue;
using torch::jit::Stack;

// Returns the device that an op draws random numbers on.
c10::Device DrawingDevice(const c10::OperatorHandle& op, const Stack& arguments) {
  for (const IValue& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().defined()) return argument.toTensor().device();
  }
  const std::optional<int> device = op.schema().argumentIndexWithName("device");
  if (device && !arguments[Index(*device)].isNone()) return arguments[Index(*device)].toDevice();
  return c10::kCPU;
}

}  // namespace

std::vector<Argument> Recorder::ToArguments(const c10::OperatorHandle& op, const Stack& arguments) {
  std::vector<Argument> converted;
  for (const IValue& argument : arguments) converted.push_back(ToArgument(argument));
  if (random_op_) {
    converted[Index(*op.schema().argumentIndexWithName("generator"))] = IValue(*random_op_);
  }
  return converted;
}

void Recorder::NumberRandomOp(const c10::OperatorHandle& op, const Stack& arguments) {
  random_op_.reset();
  if (!numbers_random_ops_ || !op.hasTag(at::Tag::nondeterministic_seeded) ||
      !TakesGenerator(op.schema())) {
    return;
  }
  if (!is_exclusive_) {
    random_op_ = NextRandomOp();
    return;
  }
  const IValue& given = arguments[Index(*op.schema().argumentIndexWithName("generator"))];
  const at::Generator generator =
      given.isGenerator() ? given.toGenerator()
                          : at::globalContext().defaultGenerator(DrawingDevice(op, arguments));
  const at::Tensor state = generator.get_state();
  std::string key(static_cast<const char*>(state.const_data_ptr()), state.nbytes());
  const auto [found, is_new] = random_ops_.try_emplace(std::move(key));
  if (is_new) found->second = NextRandomOp();
  random_op_ = found->second;
}

}  // namespace penstock
