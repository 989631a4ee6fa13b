#include "runtime/stage.h"

#include <utility>

#include "base/result.h"

namespace penstock {

void Stage::Run(StageCall call) {
  switch (call.op) {
    case Op::kForward:
      return Forward(call.microbatch, std::move(call.input), call.output);
    case Op::kBackward:
      return Backward(call.microbatch, std::move(call.input), call.output);
    case Op::kBackwardInput:
      return BackwardInput(call.microbatch, std::move(call.input), call.output);
    case Op::kBackwardWeight:
      return BackwardWeight(call.microbatch);
    default:
      return Step();
  }
}

std::int64_t Stage::Overlap(StageCall first, Stage& other, StageCall second) {
  Run(std::move(first));
  const std::int64_t between = ActivationBytes();
  other.Run(std::move(second));
  return between;
}

void Stage::DropForwards() { PENSTOCK_CHECK(false, "the stage cannot discard its forwards"); }

}  // namespace penstock
