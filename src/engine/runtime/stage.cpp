#include "runtime/stage.h"

#include <utility>

#include "base/result.h"

namespace penstock {

namespace {

template <Op op>
void SideWork(Stage& stage, int microbatch, Message /*input*/, Outlet& /*output*/) {
  stage.DoSideWork(op, microbatch);
}

}  // namespace

StageMethod MethodOf(Op op) {
  switch (op) {
    case Op::kForward:
      return [](Stage& stage, int microbatch, Message input, Outlet& output) {
        stage.Forward(microbatch, std::move(input), output);
      };
    case Op::kBackward:
      return [](Stage& stage, int microbatch, Message input, Outlet& output) {
        stage.Backward(microbatch, std::move(input), output);
      };
    case Op::kBackwardInput:
      return [](Stage& stage, int microbatch, Message input, Outlet& output) {
        stage.BackwardInput(microbatch, std::move(input), output);
      };
    case Op::kBackwardWeight:
      return
          [](Stage& stage, int microbatch, Message, Outlet&) { stage.BackwardWeight(microbatch); };
    case Op::kStep:
      return [](Stage& stage, int, Message, Outlet&) { stage.Step(); };
    case Op::kUnshard:
      return SideWork<Op::kUnshard>;
    case Op::kReshard:
      return SideWork<Op::kReshard>;
    case Op::kReduceGrad:
      return SideWork<Op::kReduceGrad>;
    case Op::kOffload:
      return SideWork<Op::kOffload>;
    case Op::kReload:
      return SideWork<Op::kReload>;
    case Op::kRecompute:
      return SideWork<Op::kRecompute>;
    case Op::kEmbed:
      return SideWork<Op::kEmbed>;
    case Op::kVocabularyInput:
      return SideWork<Op::kVocabularyInput>;
    case Op::kVocabularyWeight:
      return SideWork<Op::kVocabularyWeight>;
    case Op::kEmbedGradient:
      return SideWork<Op::kEmbedGradient>;
    default:
      return nullptr;
  }
}

void Stage::Run(StageCall call) {
  MethodOf(call.op)(*this, call.microbatch, std::move(call.input), call.output);
}

std::int64_t Stage::Overlap(StageCall first, Stage& other, StageCall second) {
  Run(std::move(first));
  const std::int64_t between = ActivationBytes();
  other.Run(std::move(second));
  return between;
}

void Stage::DropForwards() { PENSTOCK_CHECK(false, "the stage cannot discard its forwards"); }

}  // namespace penstock
