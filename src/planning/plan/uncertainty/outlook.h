// How sure a choice among plans is: their times when the constants of the cost model are off by as
// much as is known of them. Plans are priced again with their schedules; nothing is searched anew.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "plan/search/search.h"
#include "plan/uncertainty/constants.h"
#include "plan/uncertainty/regret.h"

namespace penstock {

struct OutlookQuestion {
  std::vector<UncertainConstant> constants;
  std::size_t samples = 1;
  std::uint64_t seed = 1;
  std::function<void(double done)> progress = [](double) {};  // on any thread, one at a time
  std::function<bool()> stop = [] { return false; };          // ends without an outlook
};

struct Outlook {
  struct Candidate {
    TrainingPlan plan;
    CandidateRegret regret;
  };
  struct Constant {
    UncertainConstant constant;
    double regret_left = 0;  // of the best choice of someone who knows it
  };
  std::size_t samples = 0;
  std::uint64_t seed = 0;
  std::vector<Candidate> candidates = {};  // the choice, then the most frequent winners
  std::vector<Constant> constants = {};    // that vary, the one that settles most first

  const Candidate& choice() const { return candidates.front(); }
  // The candidate with the least expected regret; the choice, if it is one of them.
  const Candidate& safest() const;
  // The constant to measure. Null if none makes the expected regret clearly smaller.
  const Constant* decisive() const;
};

// Returns the plans that are compared: the front, the runners-up and the best of the most promising
// divisions, each once. The choice is the first.
std::vector<TrainingPlan> CandidatesOf(const PlanAnswer& answer);

// Prices the candidates under each sample, on all cores. Empty if stop() ended it. Deterministic:
// the number of cores does not change the result. Errors: as for pricing.
Result<std::optional<Outlook>> OutlookOf(const PlanAnswer& answer, const OutlookQuestion& question);

}  // namespace penstock
