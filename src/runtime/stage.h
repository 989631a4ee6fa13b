// Stage: what an executor needs of one pipeline stage. No tensor type here: the executor is core.
//
// The executor calls the stage's methods from its rank's one thread, in the order of the schedule.
// `row` numbers the microbatch (or slice) as Schedule::rows() says. A stage throws to fail the run.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "runtime/message.h"
#include "schedule/action.h"
#include "schedule/schedule.h"

namespace penstock {

// Where a stage leaves an output. Sending never waits: the output may leave before the call
// returns.
class Outlet {
 public:
  virtual void Send(Message message) = 0;

 protected:
  ~Outlet() = default;
};

// One part of an overlapped pair, with what a call of that part alone would be given.
struct StageCall {
  Op op;
  int row;
  Message input;
  Outlet& output;
};

class Stage {
 public:
  virtual ~Stage() = default;

  // A new step (batch) begins: row numbers start over. Called before the step's first action.
  virtual void BeginStep(std::int64_t step) = 0;

  // `input` is the previous stage's output, empty at a chain's first stage, which reads its own
  // data. Sends the output, except at a chain's last stage, which keeps its loss.
  virtual void Forward(int row, Message input, Outlet& output) = 0;

  // `output_gradient` is the next stage's input gradient, empty at a chain's last stage. Sends the
  // input gradient, as early as it is there, except at a chain's first stage.
  virtual void Backward(int row, Message output_gradient, Outlet& input_gradient) = 0;
  virtual void BackwardInput(int row, Message output_gradient, Outlet& input_gradient) = 0;
  virtual void BackwardWeight(int row) = 0;

  // OVERLAP_F_B: `first` on this stage and `second` on `other`, which is this stage or another one
  // of the rank. One is a forward, the other a backward, and neither needs what the other makes, so
  // they may be mixed at will; each output leaves as early as it is there. By default they run in
  // turn. Returns ActivationBytes() as it is with the first part done and the second not begun.
  virtual std::int64_t Overlap(StageCall first, Stage& other, StageCall second);

  // The optimizer's update from the gradients gathered since the last, which are cleared.
  virtual void Step() = 0;

  // The ops that passes add: UNSHARD, RESHARD, REDUCE_GRAD (row -1), OFFLOAD, RELOAD, RECOMPUTE.
  // DoSideWork is called for those alone that DoesSideWork names; what it starts may go on beside
  // compute.
  virtual bool DoesSideWork(Op) const { return false; }
  virtual void DoSideWork(Op op, int) {
    PENSTOCK_CHECK(false, "the stage does not run op {}", static_cast<int>(op));
  }
  // Whether the stage keeps the versions of its weights that the policy asks for.
  virtual bool Keeps(WeightPolicy policy) const { return policy == WeightPolicy::kFlush; }

  // Waits for what an action needs beside its message: a RELOAD or an UNSHARD that the stage itself
  // has started, the gradients of other stages before STEP. Called before each action, behind its
  // message, so that the wait is no part of the action. False where the run was aborted meanwhile.
  [[nodiscard]] virtual bool Await(Op, int) { return true; }

  // Updates that stages make together (update_exchange.h). A stage without weights needs none of
  // it.

  // The gradients gathered since the last update, for the stage's replica in another chain; called
  // once for each.
  virtual Message ShareGradients() { return {}; }
  // What the replica in `chain` shared. When all have come, AddGradients() sets the stage's own to
  // the sum over all chains, added in their order.
  virtual void TakeGradients(int /*chain*/, Message) {}
  virtual void AddGradients() {}
  // Parameters that several stages hold a copy of: `parameter` counts as in Schedule::shared,
  // `holder` the stages there. ShareParameter returns the gradient accumulated since the last
  // update, for another holder; called once for each. When those of all others have come,
  // AddParameter sets the stage's own to the sum over all holders, added in their order.
  virtual Message ShareParameter(int /*parameter*/) { return {}; }
  virtual void TakeParameter(int /*parameter*/, int /*holder*/, Message) {}
  virtual void AddParameter(int /*parameter*/) {}
  // Squared norm of each parameter's gradient, in the order of the model. A shared parameter
  // counts at its first holder: it is 0 at the others. Stays until the next call.
  virtual std::span<const double> SquaredNorms() { return {}; }
  // The name of a parameter by its place in SquaredNorms(), for error messages.
  virtual std::string ParameterName(std::size_t /*index*/) const { return "a parameter"; }
  virtual void ScaleGradients(double /*factor*/) {}
  // The next Step only clears the gradients.
  virtual void DropGradients() {}
  // A Step that can be taken back: KeepStep() makes it final and clears the gradients, UndoStep()
  // leaves everything as it was before, to the last bit, gradients included.
  virtual void TryStep() { Step(); }
  virtual void KeepStep() {}
  virtual void UndoStep() {}
  // Forgets all rows since BeginStep; only forwards have run.
  virtual void DropRows();

  // Bytes of activations held now, between F and the end of B or W, wherever they lie.
  virtual std::int64_t ActivationBytes() const = 0;
  // Of those, the bytes that lie in the slower pool, where OFFLOAD has moved them.
  virtual std::int64_t AwayBytes() const { return 0; }

  // Calls the method that the op names.
  void Run(StageCall call);
};

}  // namespace penstock
