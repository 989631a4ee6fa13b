#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "base/index.h"
#include "bindings/bindings.h"
#include "report/report.h"
#include "report/terminal.h"
#include "simulate/simulate.h"

namespace penstock::python {
namespace {

using nb::literals::operator""_a;

// A schedule with its simulated times. Copies the schedule: lanes may be edited afterwards.
struct Simulation {
  Schedule schedule;
  Costs costs;
  Timeline timeline;
  SimulationResult result;
  std::vector<SentMessage> messages;
};

std::unique_ptr<Simulation> SimulateSchedule(const Schedule& schedule, const Costs& costs) {
  auto simulation = std::make_unique<Simulation>(Simulation{schedule, costs, {}, {}, {}});
  simulation->result = ValueOf(Simulate(
      simulation->schedule, costs,
      {.timeline = &simulation->timeline, .jitter = nullptr, .messages = &simulation->messages}));
  return simulation;
}

using Times = nb::ndarray<nb::numpy, const double, nb::ndim<2>>;

// Rows of start and end; valid as long as the simulation, which it keeps alive.
Times TimesOf(nb::handle self, int rank) {
  const auto& simulation = nb::cast<const Simulation&>(self);
  if (rank < 0 || rank >= simulation.schedule.ranks()) throw nb::index_error("no such rank");
  const std::vector<Span>& spans = simulation.timeline.spans[Index(rank)];
  return Times(spans.data(), {spans.size(), 2}, self);
}

ReportInput InputOf(const Simulation& simulation, const std::string& title) {
  ReportInput input;
  input.title = title;
  input.schedule = &simulation.schedule;
  input.runs.push_back({"simulated", &simulation.timeline, simulation.result,
                        MemoryOverTime(simulation.schedule, simulation.timeline, simulation.costs),
                        nullptr,
                        Explain(simulation.schedule, simulation.timeline, simulation.messages),
                        simulation.messages});
  return input;
}

}  // namespace

void AddSimulationTypes(nb::module_& module) {
  nb::class_<Simulation>(module, "Simulation", "A schedule with its simulated times.")
      .def_prop_ro("makespan", [](const Simulation& self) { return self.result.makespan; })
      .def_prop_ro(
          "bubble", [](const Simulation& self) { return self.result.bubble; },
          "1 - ideal / makespan.")
      .def_prop_ro(
          "peak_memory", [](const Simulation& self) { return self.result.peak_memory; },
          "Of the worst rank.")
      .def_prop_ro(
          "messages", [](const Simulation& self) { return self.result.messages; },
          "Between ranks, in both directions.")
      .def("times", &TimesOf, "rank"_a, "Start and end of each action of a rank: (actions, 2).")
      .def(
          "_report",
          [](const Simulation& self, const std::string& title, const std::string& path) {
            Require(WriteReport(InputOf(self, title), path));
          },
          "title"_a, "path"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("_svg", [](const Simulation& self) { return ValueOf(RenderSvg(InputOf(self, ""))); })
      .def(
          "_show",
          [](const Simulation& self, int width) {
            return ValueOf(RenderTerminal(self.schedule, self.timeline, {.width = width}));
          },
          "width"_a);
  module.def("_simulate", &SimulateSchedule, "schedule"_a, "costs"_a,
             nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace penstock::python
