// Stage: what an executor needs of one pipeline stage. No tensor type here: the executor is core.
//
// The executor calls the stage's methods from its rank's one thread, in the order of the schedule.
// `row` numbers the microbatch (or cut) as Schedule::rows() says. A stage throws to fail the run.
#pragma once

#include <cstdint>

#include "runtime/message.h"

namespace penstock {

// Where a stage leaves an output. Sending never waits: the output may leave before the call
// returns.
class Outlet {
 public:
  virtual void Send(Message message) = 0;

 protected:
  ~Outlet() = default;
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

  // The optimizer's update from the gradients gathered since the last, which are cleared.
  virtual void Step() = 0;

  // Bytes of activations held now, between F and the end of B or W.
  virtual std::int64_t ActivationBytes() const = 0;
};

}  // namespace penstock
