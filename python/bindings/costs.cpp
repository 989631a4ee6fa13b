#include "schedule/costs.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "schedule/catalog.h"

namespace penstock::python {
namespace {

using nb::literals::operator""_a;

OverlapRule OverlapOf(const std::string& text) {
  if (text == "max") return {};
  if (text == "sum") return {OverlapRule::Kind::kSum, 1};
  throw PythonError(Error{ErrorCode::kInvalidArgument,
                          fmt::format("overlap is '{}': give 'max' or 'sum'", text)});
}

Costs UniformCosts(const Schedule& schedule, double forward, double backward_input,
                   double backward_weight, double comm, double kept_for_weight,
                   const std::string& overlap) {
  for (const double time : {forward, backward_input, backward_weight, comm})
    Require(CheckTime(time));
  Costs costs = Costs::Uniform(schedule.placement, schedule.slices, forward, backward_input,
                               backward_weight, comm, kept_for_weight);
  costs.overlap = OverlapOf(overlap);
  return costs;
}

}  // namespace

void AddCostTypes(nb::module_& module) {
  nb::class_<StageCosts>(module, "StageCosts", "Times and memory of one stage and microbatch.")
      .def_rw("forward", &StageCosts::forward)
      .def_rw("backward_input", &StageCosts::backward_input)
      .def_rw("backward_weight", &StageCosts::backward_weight)
      .def_rw("activation", &StageCosts::activation,
              "Memory that is held from the start of F to the end of B or W.")
      .def_rw("activation_after_i", &StageCosts::activation_after_i, "The part of it that W reads.")
      .def_rw("step", &StageCosts::step, "Time of the optimizer step.")
      .def_rw("message_scale", &StageCosts::message_scale);
  nb::class_<Costs>(module, "Costs", "Times and memory of a schedule's actions.")
      .def_rw("stages", &Costs::stages, "By stage. Assign the whole list to change it.")
      .def_rw("comm", &Costs::comm, "Latency of a message between two ranks.")
      .def_rw("message_bytes", &Costs::message_bytes)
      .def("__repr__", [](const Costs& costs) {
        return fmt::format("<penstock.Costs of {} stages>", costs.stages.size());
      });
  module.def("_uniform_costs", &UniformCosts, "schedule"_a, "forward"_a, "backward_input"_a,
             "backward_weight"_a, "comm"_a, "kept_for_weight"_a, "overlap"_a);
  nb::class_<ScheduleParams>(module, "_Params")
      .def(nb::init<>())
      .def_rw("ranks", &ScheduleParams::ranks)
      .def_rw("chunks", &ScheduleParams::chunks)
      .def_rw("microbatches", &ScheduleParams::microbatches)
      .def_rw("forward", &ScheduleParams::forward)
      .def_rw("backward_input", &ScheduleParams::backward_input)
      .def_rw("backward_weight", &ScheduleParams::backward_weight)
      .def_rw("comm", &ScheduleParams::comm)
      .def_rw("memory_limit", &ScheduleParams::memory_limit)
      .def_rw("group", &ScheduleParams::group)
      .def_rw("slices", &ScheduleParams::slices)
      .def_rw("waves", &ScheduleParams::waves)
      .def_rw("steps", &ScheduleParams::steps)
      .def_rw("split", &ScheduleParams::split);
}

}  // namespace penstock::python
