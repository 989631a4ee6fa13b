#include "runtime/stage.h"

#include <utility>

#include "base/result.h"

namespace penstock {

void Stage::Run(StageCall call) {
  switch (call.op) {
    case Op::kForward:
      return Forward(call.row, std::move(call.input), call.output);
    case Op::kBackward:
      return Backward(call.row, std::move(call.input), call.output);
    case Op::kBackwardInput:
      return BackwardInput(call.row, std::move(call.input), call.output);
    case Op::kBackwardWeight:
      return BackwardWeight(call.row);
    default:
      return Step();
  }
}

std::int64_t Stage::Overlap(StageCall first, Stage& other, StageCall second) {
  Run(std::move(first));
  const std::int64_t held = ActivationBytes();
  other.Run(std::move(second));
  return held;
}

void Stage::DropRows() { PENSTOCK_CHECK(false, "the stage cannot forget its forwards"); }

}  // namespace penstock
