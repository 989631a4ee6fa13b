// The catalog of schedules and the passes, by name.
#include "schedule/catalog.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "base/text/nearest.h"
#include "bindings/core/binding.h"
#include "bindings/core/frozen_schedule.h"
#include "bindings/core/scenario_costs.h"
#include "config/other_names.h"
#include "config/replicas.h"
#include "scenario/price/passes.h"
#include "schedule/data_parallel.h"
#include "schedule/passes/pass_table.h"
#include "schedule/passes/passes.h"
#include "schedule/text/text.h"

namespace penstock::python {
namespace {

FrozenSchedule FreezeValid(Schedule schedule, bool steps_wait_for_all) {
  return {std::make_shared<const Schedule>(std::move(schedule)), true, steps_wait_for_all};
}

// Generates with the costs and the fields of a JSON object.
FrozenSchedule GenerateSchedule(const std::string& name, const std::string& fields,
                                const ScenarioCosts& costs) {
  const nb::gil_scoped_release release;
  const Algorithm* algorithm = ValueOf(FindAlgorithm(name));
  Scenario scenario = costs.scenario();
  const Status status = ReadFields(fields, {}, scenario);
  if (!status) ThrowWithoutLine(status.error());
  const PricedSchedule chosen = ValueOf(Choose(scenario, *algorithm, Given::kAll));
  return FreezeValid(ValueOf(Generate(name, chosen.params)), false);
}

FrozenSchedule ApplyPasses(const FrozenSchedule& self, const std::vector<std::string>& passes,
                           const ScenarioCosts& prices) {
  RequireValid(self);
  const std::shared_ptr<const Schedule> schedule = self.schedule;
  const nb::gil_scoped_release release;
  Costs costs = ValueOf(prices.PriceOf(*schedule)).costs;
  costs.steps_wait_for_all = self.steps_wait_for_all;
  Scenario with_passes = prices.scenario();
  with_passes.pass = passes;
  Schedule changed = *schedule;
  Require(ValueOf(PassesOf(with_passes)).Run(changed, costs));
  return FreezeValid(std::move(changed), costs.steps_wait_for_all);
}

FrozenSchedule Replicate(const FrozenSchedule& self, int replicas) {
  RequireValid(self);
  const std::shared_ptr<const Schedule> schedule = self.schedule;
  const bool waits = self.steps_wait_for_all;
  const nb::gil_scoped_release release;
  return FreezeValid(ValueOf(AddDataParallelism(*schedule, replicas)), waits);
}

// What replicas of a pipeline divide (ZeRO), as the engine decides it.
int ZeroOfReplicas(const FrozenSchedule& self, int replicas, int zero) {
  return ZeroOf({.data = replicas, .zero = zero}, *self.schedule);
}
bool HaveGroups(const FrozenSchedule& self, int replicas, int zero) {
  return HasReplicaGroups({.data = replicas, .zero = zero}, *self.schedule);
}

FrozenSchedule Lower(const FrozenSchedule& self, bool for_torch) {
  RequireValid(self);
  const std::shared_ptr<const Schedule> schedule = self.schedule;
  const bool waits = self.steps_wait_for_all;
  const nb::gil_scoped_release release;
  if (for_torch) Require(RequireTorchOps(*schedule));
  Schedule lowered = for_torch ? LowerForTorch(*schedule) : AddCommunication(*schedule);
  return FreezeValid(std::move(lowered), waits);
}

std::vector<std::string_view> SupportedNames(const Algorithm& algorithm) {
  const SupportedParameters& supported = algorithm.supported;
  const std::pair<std::string_view, bool> all[] = {
      {"chunks", supported.min_chunks != supported.max_chunks},
      {"group", supported.group},
      {"slices", supported.slices},
      {"waves", supported.waves},
      {"steps", supported.steps},
      {"split", supported.split},
      {"memory_limit", supported.memory_limit},
      {"objective", supported.objective}};
  std::vector<std::string_view> names;
  for (const auto& [name, reads] : all) {
    if (reads) names.push_back(name);
  }
  return names;
}

// Returns "did you mean 'ranks'?" for a keyword that is misspelled, or that other frameworks use;
// empty if none of the known ones is meant.
std::string KeywordHint(const std::string& name, const std::vector<std::string>& known) {
  const auto ours = OurNameOf(name, [&](std::string_view parameter) {
    return std::ranges::find(known, parameter) != known.end();
  });
  if (ours && !ours->empty()) return fmt::format("did you mean '{}'?", *ours);
  return DidYouMean(name, {known.begin(), known.end()});
}

}  // namespace

void AddCatalog(nb::module_& module) {
  nb::class_<Algorithm>(module, "Algorithm", "A schedule of the catalog.")
      .def_ro("name", &Algorithm::name)
      .def_ro("aliases", &Algorithm::aliases)
      .def_ro("summary", &Algorithm::summary, "One line.")
      .def_ro("when", &Algorithm::when, "When to use it; may be empty.")
      .def_ro("constraint", &Algorithm::constraint, "On the parameters; empty if there is none.")
      .def_ro("makespan", &Algorithm::makespan, "Closed form, as text.")
      .def_ro("memory", &Algorithm::memory, "Closed form of the peak, as text.")
      .def_ro("source", &Algorithm::source, "Paper and section.")
      .def_prop_ro("parameters", &SupportedNames,
                   "What it reads in addition to ranks, microbatches and costs.")
      .def("__repr__",
           [](const Algorithm& self) { return fmt::format("<penstock.Algorithm {}>", self.name); });
  nb::class_<SchedulePass>(module, "Pass", "A pass over schedules.")
      .def_ro("name", &SchedulePass::name)
      .def_ro("arguments", &SchedulePass::arguments,
              "Their form, such as \"[N][:keep]\"; empty if it takes none.")
      .def_ro("summary", &SchedulePass::summary)
      .def("__repr__",
           [](const SchedulePass& self) { return fmt::format("<penstock.Pass {}>", self.name); });
  // Copies, because the catalog's entries have no owner that Python knows.
  module.def("algorithms",
             [] { return std::vector<Algorithm>(Catalog().begin(), Catalog().end()); });
  module.def("passes", [] {
    return std::vector<SchedulePass>(SchedulePasses().begin(), SchedulePasses().end());
  });
  module.def("keyword_hint", &KeywordHint, "name"_a, "known"_a);
  module.def("generate", &GenerateSchedule, "name"_a, "fields"_a, "costs"_a);
  module.def("apply", &ApplyPasses, "schedule"_a, "passes"_a, "prices"_a);
  module.def("zero_of", &ZeroOfReplicas, "schedule"_a, "replicas"_a, "zero"_a);
  module.def("have_groups", &HaveGroups, "schedule"_a, "replicas"_a, "zero"_a);
  module.def("replicate", &Replicate, "schedule"_a, "replicas"_a);
  module.def("lower", &Lower, "schedule"_a, "for_torch"_a);
}

}  // namespace penstock::python
