// Stages that lack a part of the backward, because they do not train all of their weights.
//
//   frozen      encoders, teachers: F only, unless a stage before is trained; then F and I
//   adapters    LoRA: F and I, which also computes the gradients of the adapters
//
// Stages are those of the model; replicas are alike. What a stage lacks is in no lane, and nothing
// waits for it: neither a message, nor a STEP or REDUCE_GRAD of a frozen stage.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

// What the caller says: stages of the model in ascending order, no stage in both lists.
struct Untrained {
  std::vector<int> frozen = {}, adapters = {};

  bool empty() const { return frozen.empty() && adapters.empty(); }
  friend bool operator==(const Untrained&, const Untrained&) = default;
};

// Reads "0-2,5": stages and ranges of them, separated by commas, semicolons or blanks.
Result<std::vector<int>> ParseStages(std::string_view text);
// Returns "0-2;5", which a cell of a CSV may have.
std::string StagesText(const std::vector<int>& stages);

// Returns Schedule::backward. Refuses stages that a chain of so many lacks, and one in both lists.
Result<std::vector<StageBackward>> BackwardsOf(const Untrained& untrained, int chain_length);
// Returns the lists from which BackwardsOf has this result.
Untrained UntrainedOf(const Schedule& schedule);

// Whether a stage runs the op.
bool Runs(StageBackward backward, Op op);

// Removes what the stages lack from the lanes, with its messages, and sets Schedule::backward. On a
// stage without W, B becomes I. No action starts later than before. The result is valid if
// `schedule` is. Refuses a sharded vocabulary, and parameters that a trained and an untrained stage
// share.
Result<Schedule> WithoutBackward(const Schedule& schedule, const Untrained& untrained);

// Returns the costs without what the schedule's stages do not compute or keep: F of a stage without
// a backward keeps nothing for one, I frees what no W reads, and a frozen stage has no gradients
// and no optimizer. Once done, it changes nothing more.
Costs CostsWithoutBackward(const Schedule& schedule, Costs costs);
bool IsUntrained(const Schedule& schedule);

}  // namespace penstock
