// StageUpdate: what an update calls of a stage if it involves several stages (update_exchange.h).
//
// Threads: the thread of the stage's rank. A stage throws to fail the run.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "runtime/message.h"

namespace penstock {

// The base class does nothing, for stages without weights.
class StageUpdate {
 public:
  virtual ~StageUpdate() = default;

  // Returns the gradients accumulated since the last update that the stage's replica in `to_chain`
  // updates: all, or only its shard's. Called once per replica.
  virtual Message ShareGradients(int /*to_chain*/) { return {}; }
  // Takes the gradients of the replica in `chain`. After all have arrived, AddGradients() sets the
  // gradients that the stage updates to the sum over all chains, in the order of the chains.
  virtual void TakeGradients(int /*chain*/, Message /*gradients*/) {}
  virtual void AddGradients() {}
  // If UpdateRule::sends_shards(): returns the parameters of the stage's own shard after its step,
  // for another replica. Called once per replica. TakeShard sets the parameters of the shard of the
  // replica in `chain`.
  virtual Message ShareShard() { return {}; }
  virtual void TakeShard(int /*chain*/, Message) {}
  // Updates parameters that several stages hold a copy of. `parameter` is an index in
  // Schedule::shared, and `holder` an index of a stage in its entry. ShareParameter returns the
  // gradient accumulated since the last update, for another holder; it is called once per holder.
  // After all other gradients have arrived, AddParameter sets the stage's own to the sum over all
  // holders, in their order.
  virtual Message ShareParameter(int /*parameter*/) { return {}; }
  virtual void TakeParameter(int /*parameter*/, int /*holder*/, Message) {}
  virtual void AddParameter(int /*parameter*/) {}
  // Returns the squared norm of each parameter's gradient, in the order of the model; with
  // UpdateRule::zero, of the part in the stage's own shard. A shared parameter counts at its
  // first holder and is 0 at the others. Valid until the next call.
  virtual std::span<const double> SquaredNorms() { return {}; }
  // Returns the name of a parameter by its index in SquaredNorms(), for error messages.
  virtual std::string ParameterName(std::size_t /*index*/) const { return "a parameter"; }
  virtual void ScaleGradients(double /*factor*/) {}
  // Makes the next Step clear the gradients without an update.
  virtual void DropGradients() {}
  // After TryStep: CommitStep() makes the step final and clears the gradients. RollBackStep()
  // restores the state before it bit for bit, including the gradients.
  virtual void CommitStep() {}
  virtual void RollBackStep() {}
};

}  // namespace penstock
