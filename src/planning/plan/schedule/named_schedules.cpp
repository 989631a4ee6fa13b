#include "plan/schedule/named_schedules.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

class Lister {
 public:
  explicit Lister(const ScheduleParams& params) : params_(params) {}

  // Adds the algorithm with these chunks and all values of its options.
  void Add(const Algorithm& algorithm, int chunks) {
    ScheduleParams params = params_;
    params.chunks = chunks;
    params.memory_limit.reset();
    params.objective = algorithm.supported.objective ? params_.objective : Objective::kMakespan;
    AddOne(algorithm, params, "");
    if (algorithm.supported.split) {
      params.split = true;
      AddOne(algorithm, params, ":split");
      params.split = false;
    }
    if (algorithm.supported.group) AddGroups(algorithm, params);
  }

  std::vector<NamedSchedule> Take() { return std::move(named_); }

 private:
  void AddGroups(const Algorithm& algorithm, ScheduleParams params) {
    for (int group = (params.ranks + 1) / 2; group < params.ranks; ++group) {
      params.group = group;
      AddOne(algorithm, params, fmt::format(":group={}", group));
    }
  }

  void AddOne(const Algorithm& algorithm, const ScheduleParams& params,
              const std::string& options) {
    const auto checked = CheckParams(algorithm, params);
    if (checked) named_.push_back({std::string(algorithm.name) + options, &algorithm, *checked});
  }

  const ScheduleParams& params_;
  std::vector<NamedSchedule> named_;
};

bool Searches(const Algorithm& algorithm) {
  return algorithm.name == "zb-auto" || algorithm.name == "v-auto";
}

}  // namespace

std::vector<NamedSchedule> NamedSchedules(const ScheduleParams& params,
                                          const std::vector<int>& chunks) {
  Lister lister(params);
  for (const Algorithm& algorithm : Catalog()) {
    if (algorithm.supported.steps || Searches(algorithm)) continue;
    for (const int count : chunks) {
      const SupportedParameters& supported = algorithm.supported;
      if (count < supported.min_chunks || count > supported.max_chunks) continue;
      lister.Add(algorithm, count);
    }
  }
  return lister.Take();
}

}  // namespace penstock
