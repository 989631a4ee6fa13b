// Stage: the executor's interface to one pipeline stage. It uses no tensor type, because the
// executor is core.
//
// The executor calls the methods from the single thread of the stage's rank, in the order of the
// schedule. `microbatch` is a microbatch index (of a slice, if there are slices), from 0 to
// Schedule::indices() - 1. A stage throws to fail the run.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "runtime/message.h"
#include "runtime/stage_update.h"
#include "schedule/action.h"
#include "schedule/schedule.h"

namespace penstock {

class VocabularyShard;

// Sends the output of a stage. Never waits: the output may be sent before the stage's method
// returns.
class Outlet {
 public:
  virtual void Send(Message message) = 0;

 protected:
  ~Outlet() = default;
};

// One part of an overlapped pair, with the arguments of a call of that part alone.
struct StageCall {
  Op op;
  int microbatch;
  Message input;
  Outlet& output;
};

// The clock of a device that runs a stage's work after the calls that start it. Threads: the
// stage's.
class StageClock {
 public:
  // Starts a step with marks from 0 to `marks` - 1.
  virtual void Begin(std::size_t marks) = 0;
  // Marks the end of the work that has been started so far.
  virtual void Mark(std::size_t mark) = 0;
  // Returns when the device reached a mark of the step, in ns of the steady clock; 0 if it is not
  // set. Requires: EndStep was called since.
  virtual std::int64_t At(std::size_t mark) const = 0;

 protected:
  ~StageClock() = default;
};

class Stage {
 public:
  virtual ~Stage() = default;

  // Starts a new step (batch), whose microbatch indices start at 0. Called before the first action
  // of the step.
  virtual void BeginStep(std::int64_t step) = 0;
  // Waits until what the stage has computed may be read on any thread. Called when a step has
  // ended, unless the run was aborted.
  virtual void EndStep() {}
  // Returns the clock of the rank's work; null if it has run when the methods return.
  virtual StageClock* clock() { return nullptr; }
  // The device waits for the message of an action, so that the wait is not part of the action.
  // Called before the start of the action is marked, if the stage has a clock.
  virtual void AwaitInput(Message& /*input*/) {}

  // `input` is the output of the previous stage. It is empty at the first stage of a chain, which
  // reads its own data. Sends the output, except at the last stage of a chain, which keeps its
  // loss.
  virtual void Forward(int microbatch, Message input, Outlet& output) = 0;

  // `output_gradient` is the input gradient of the next stage. It is empty at the last stage of a
  // chain. Sends the input gradient as soon as it is computed, except at the first stage of a
  // chain.
  virtual void Backward(int microbatch, Message output_gradient, Outlet& input_gradient) = 0;
  virtual void BackwardInput(int microbatch, Message output_gradient, Outlet& input_gradient) = 0;
  virtual void BackwardWeight(int microbatch) = 0;

  // OVERLAP_F_B: runs `first` on this stage and `second` on `other`, which is this stage or another
  // one of the rank. One is a forward and the other a backward, and neither depends on the other,
  // so their work may be interleaved freely. Each output is sent as soon as it is computed. By
  // default they run in turn. Returns ActivationBytes() between the first and the second part.
  virtual std::int64_t Overlap(StageCall first, Stage& other, StageCall second);

  // Updates the parameters from the gradients accumulated since the last update, and clears the
  // gradients.
  virtual void Step() = 0;

  // Runs the ops that passes add: UNSHARD, RESHARD, REDUCE_GRAD (microbatch -1), OFFLOAD, RELOAD,
  // RECOMPUTE. DoSideWork is called only for ops for which DoesSideWork returns true. What it
  // starts may continue in parallel with compute.
  virtual bool DoesSideWork(Op) const { return false; }
  virtual void DoSideWork(Op op, int) {
    PENSTOCK_CHECK(false, "the stage does not run op {}", static_cast<int>(op));
  }
  // Returns the rank's share of a sharded vocabulary, if this is the first stage of the rank. Its
  // passes EMBED, S, T and EMBED_GRAD run as side work.
  virtual VocabularyShard* vocabulary() { return nullptr; }
  // Returns whether the stage keeps the weight versions that the policy requires.
  virtual bool Keeps(WeightPolicy policy) const { return policy == WeightPolicy::kFlush; }

  // Waits for what an action needs in addition to its message: a RELOAD or an UNSHARD that the
  // stage has started, or the gradients of other stages before STEP. Called before each action,
  // after its message has arrived, so that the wait is not part of the action. Returns false if the
  // run was aborted.
  [[nodiscard]] virtual bool Await(Op, int) { return true; }

  // Ends the waits of Await and of the methods above, now and later, because the run failed. Any
  // thread; may be called again.
  virtual void Abort(const Error& /*reason*/) {}

  // Returns what updates call that involve several stages.
  virtual StageUpdate& update() { return no_update_; }
  // Makes a tentative step, which StageUpdate commits or rolls back. Called in place of Step.
  virtual void TryStep() { Step(); }
  // Discards all microbatches since BeginStep, whose backwards have not run, and the weights that
  // UNSHARD gathered for them.
  virtual void DropForwards();

  // Discards what the F of a microbatch has kept for a backward, which the schedule's stage does
  // not have. Called after that F.
  virtual void DropForward(int /*microbatch*/) {}

  // Returns the bytes of activations alive between F and the end of B or W, in either memory.
  virtual std::int64_t ActivationBytes() const = 0;
  // Returns how many of those bytes are in the slower pool, after OFFLOAD.
  virtual std::int64_t OffloadedBytes() const { return 0; }

  // Calls the method for the op. Requires: MethodOf(call.op) is not null.
  void Run(StageCall call);

 private:
  StageUpdate no_update_;
};

// A call of one of Stage's methods. Methods without an input or an output ignore those arguments.
using StageMethod = void (*)(Stage& stage, int microbatch, Message input, Outlet& output);

// Returns the method that runs the op, null if stages do not run it (SEND and RECV).
StageMethod MethodOf(Op op);

}  // namespace penstock
