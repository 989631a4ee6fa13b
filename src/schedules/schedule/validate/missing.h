// Finds the actions that no lane has, once every lane was walked. Private to validate/.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/stage_edges.h"
#include "schedule/validate/state.h"
#include "schedule/validate/vocabulary_passes.h"

namespace penstock::validation {

// What ran, by the end of the walk.
struct Walked {
  const Schedule& schedule;
  const Usage& usage;
  const std::vector<StageEdges>& edges;      // by stage
  const std::vector<std::uint8_t>& history;  // by (stage, microbatch): Bits of the ops that ran
  const RareOps& rare;
  const VocabularyPasses& vocabulary;
};

void FindMissing(const Walked& walked, FaultList& faults);

}  // namespace penstock::validation
