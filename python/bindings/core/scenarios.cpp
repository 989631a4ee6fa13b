// Whole scenarios: simulations and sweeps as `penstock simulate` runs them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <atomic>

#include "base/index.h"
#include "base/notes.h"
#include "bindings/core/binding.h"
#include "bindings/core/scenario_costs.h"
#include "bindings/core/until_signal.h"
#include "emulated/emulated_run.h"
#include "scenario/candidates.h"
#include "scenario/fields.h"
#include "scenario/price/simulated.h"
#include "scenario/price/unused_fields.h"
#include "scenario/sweep/run_sweep.h"
#include "schedule/text/text.h"

namespace penstock::python {
namespace {

// Reads the words that name schedules, and the fields of a JSON object.
Scenario ScenarioOf(const std::vector<std::string>& schedules, const std::string& fields,
                    const Purpose& purpose) {
  Scenario scenario;
  ReadWords read = ValueOf(ReadCandidates(schedules));
  scenario.schedules = std::move(read.candidates);
  const Status status = ReadFields(fields, purpose, scenario);
  if (!status) ThrowWithoutLine(status.error());
  if (!read.config.empty()) {
    const auto primus = ValueOf(ReadScenarioFile(read.config, purpose, scenario));
    if (primus) Refuse("{}: give it to 'penstock simulate'", read.config);
  }
  scenario.compares = scenario.schedules.size() > 1 || !scenario.sweep.empty();
  if (scenario.sweep.empty()) Require(RefuseUnused(scenario, purpose));
  return scenario;
}

nb::dict SpreadOf(const Spread& spread) {
  nb::dict figures;
  figures["mean"] = spread.mean;
  figures["median"] = spread.median;
  figures["p95"] = spread.p95;
  return figures;
}

void AddResult(const SimulationResult& result, nb::dict& figures) {
  figures["makespan"] = result.makespan;
  figures["bubble"] = result.bubble;
  figures["span_bubble"] = result.span_bubble;
  figures["peak_memory"] = result.peak_memory;
  figures["messages"] = result.messages;
}

nb::dict FiguresOf(const Simulated& simulated) {
  const PricedSchedule& chosen = simulated.chosen;
  nb::dict figures;
  figures["schedule"] = chosen.label;
  figures["ranks"] = chosen.schedule.ranks();
  figures["chunks"] = chosen.schedule.placement.chunks();
  figures["microbatches"] = chosen.schedule.microbatches;
  AddResult(simulated.result, figures);
  figures["time_unit"] = chosen.time_unit;
  figures["memory_unit"] = chosen.memory_unit;
  if (chosen.memory_limit) {
    figures["memory_limit"] = *chosen.memory_limit;
    figures["above_memory_limit"] = simulated.above_limit;
  }
  if (simulated.steady_step) figures["steady_step"] = *simulated.steady_step;
  if (simulated.jittered) {
    nb::dict jittered;
    jittered["makespan"] = SpreadOf(simulated.jittered->makespan);
    jittered["bubble"] = SpreadOf(simulated.jittered->bubble);
    jittered["span_bubble"] = SpreadOf(simulated.jittered->span_bubble);
    figures["jittered"] = std::move(jittered);
  }
  return figures;
}

nb::list StepsOf(const Simulated& simulated) {
  nb::list ranks;
  const std::vector<Lane>& lanes = simulated.chosen.schedule.lanes;
  for (std::size_t rank = 0; rank < lanes.size(); ++rank) {
    nb::list steps;
    for (std::size_t i = 0; i < lanes[rank].size(); ++i) {
      nb::dict step;
      step["action"] = ToText(lanes[rank][i]);
      step["start"] = simulated.timeline.spans[rank][i].start;
      step["end"] = simulated.timeline.spans[rank][i].end;
      steps.append(std::move(step));
    }
    ranks.append(std::move(steps));
  }
  return ranks;
}

nb::dict PeakOf(const MemoryPeak& peak, const Lane& lane) {
  nb::dict by_kind, figures;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    const std::string name(NameOf(static_cast<MemoryKind>(kind)));
    by_kind[name.c_str()] = peak.by_kind[kind];
  }
  figures["amount"] = peak.amount;
  figures["time"] = peak.time;
  std::optional<std::string> action;
  if (peak.action != MemoryPeak::kNoAction) action = ToText(lane[Index(peak.action)]);
  figures["action"] = action;
  figures["in_flight"] = peak.in_flight;
  figures["by_kind"] = std::move(by_kind);
  return figures;
}

nb::list MemoryOf(const Simulated& simulated) {
  nb::list ranks;
  for (std::size_t rank = 0; rank < simulated.memory.size(); ++rank) {
    nb::dict timelines, figures;
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
      nb::list points;
      for (const MemoryPoint& point : simulated.memory[rank].curves[kind]) {
        points.append(nb::make_tuple(point.time, point.amount));
      }
      const std::string name(NameOf(static_cast<MemoryKind>(kind)));
      timelines[name.c_str()] = std::move(points);
    }
    figures["peak"] = PeakOf(simulated.memory[rank].peak, simulated.chosen.schedule.lanes[rank]);
    figures["timelines"] = std::move(timelines);
    ranks.append(std::move(figures));
  }
  return ranks;
}

nb::dict MeasuredOf(const EmulatedRun& run) {
  nb::dict figures;
  AddResult(run.measured, figures);
  figures["unit_seconds"] = run.unit;
  figures["makespan_seconds"] = run.makespan;
  figures["cpu_seconds"] = run.cpu;
  figures["worst_lateness_seconds"] = run.lateness;
  figures["too_short"] = run.too_short();
  figures["drift"] = run.drift;
  figures["busy_machine"] = run.busy;
  return figures;
}

// Runs schedules on emulated devices until Python has a signal.
std::vector<EmulatedRun> RunUntilSignal(const std::vector<Simulated>& all,
                                        const std::optional<std::string>& unit) {
  Result<std::vector<EmulatedRun>> runs = std::vector<EmulatedRun>();
  UntilSignal([&](std::atomic<bool>& stop) { runs = RunEmulated(all, unit, stop); });
  return ValueOf(std::move(runs));
}

nb::list SimulateScenario(const std::vector<std::string>& schedules, const std::string& fields,
                          bool memory, bool time_steps, bool run,
                          const std::optional<std::string>& unit) {
  if (unit && !run) Refuse("unit has no effect here: nothing is run; add run or leave it out");
  std::vector<Simulated> all;
  std::vector<EmulatedRun> runs;
  {
    const nb::gil_scoped_release release;
    const Purpose purpose{.has_runs = true, .shows_memory = memory};
    const Scenario scenario = ScenarioOf(schedules, fields, purpose);
    all = ValueOf(SimulateEach(ValueOf(Build(scenario, purpose)), memory || time_steps));
    if (memory) AddMemory(all);
    if (run) runs = RunUntilSignal(all, unit);
  }
  nb::list figures;
  for (std::size_t i = 0; i < all.size(); ++i) {
    nb::dict of_schedule = FiguresOf(all[i]);
    if (memory) of_schedule["memory"] = MemoryOf(all[i]);
    if (time_steps) of_schedule["time_steps"] = StepsOf(all[i]);
    if (run) of_schedule["measured"] = MeasuredOf(runs[i]);
    figures.append(std::move(of_schedule));
  }
  return figures;
}

nb::list SweepScenario(const std::vector<std::string>& schedules, const std::string& fields) {
  std::optional<SweepPlan> plan;
  std::vector<SweptSchedule> swept;
  {
    const nb::gil_scoped_release release;
    plan = ValueOf(SweepPlan::Of(ScenarioOf(schedules, fields, kSweepPurpose)));
    std::atomic<bool> stop{false};
    SweepWatch watch;
    watch.stop = &stop;
    watch.progress = [&stop](std::size_t) {
      const nb::gil_scoped_acquire acquire;
      if (PyErr_CheckSignals() != 0) stop = true;
    };
    auto result = RunSweep(*plan, watch);
    if (stop) {
      const nb::gil_scoped_acquire acquire;
      throw nb::python_error();  // the signal's, such as KeyboardInterrupt
    }
    swept = ValueOf(std::move(result));
  }
  nb::list rows;
  for (std::size_t i = 0; i < swept.size(); ++i) {
    nb::dict row;
    if (swept[i].simulated) {
      row = FiguresOf(*swept[i].simulated);
    } else {
      row["schedule"] = plan->schedules()[plan->ScheduleOf(i)].label();
      row["skipped"] = swept[i].skipped;
    }
    for (std::size_t axis = 0; axis < plan->axes().size(); ++axis) {
      const SweepAxis& varied = plan->axes()[axis];
      row[varied.key.c_str()] = varied.values[plan->ValueOf(i, axis)];
    }
    rows.append(std::move(row));
  }
  return rows;
}

// A field of the table as Python sees it.
struct ListedField {
  std::string name, group, help, type;
  std::vector<std::string> choices;
  bool varies;  // in sweeps
};

// The type of a field in Python, as in scenario_fields.py.
std::string PythonType(const ScenarioField& field) {
  if (!field.python.empty()) return std::string(field.python);
  if (field.takes_path) return "str | os.PathLike[str]";
  constexpr const char* kOfMembers[] = {"int",
                                        "float",
                                        "bool",
                                        "float | str",
                                        "str",
                                        "Sequence[str] | str",
                                        "Sequence[Mapping[str, Any]]",
                                        "Sequence[Mapping[str, Any]]",
                                        "Mapping[str, Any]"};
  static_assert(std::size(kOfMembers) == std::variant_size_v<ScenarioMember>);
  return kOfMembers[field.member.index()];
}

std::vector<ListedField> ListedFields() {
  constexpr const char* kGroups[] = {"shape", "files", "costs", "model", "passes", "runs"};
  std::vector<ListedField> fields;
  for (const ScenarioField& field : ScenarioFields()) {
    fields.push_back(
        {std::string(field.name),
         kGroups[static_cast<int>(field.group)],
         SpellMentions(field.help, [](std::string_view name) { return std::string(name); }),
         PythonType(field),
         {field.choices.begin(), field.choices.end()},
         field.in_candidates});
  }
  return fields;
}

}  // namespace

void AddScenarios(nb::module_& module) {
  nb::class_<ListedField>(module, "Field", "A field of a scenario: what simulations take.")
      .def_ro("name", &ListedField::name)
      .def_ro("group", &ListedField::group, "shape, files, costs, model, passes or runs.")
      .def_ro("help", &ListedField::help, "One sentence.")
      .def_ro("type", &ListedField::type, "Its type in Python.")
      .def_ro("choices", &ListedField::choices, "Words that it takes; may be empty.")
      .def_ro("varies", &ListedField::varies, "Whether sweeps may vary it.")
      .def("__repr__",
           [](const ListedField& self) { return fmt::format("<penstock.Field {}>", self.name); });
  module.def("fields", &ListedFields);
  module.def("simulate_scenario", &SimulateScenario, "schedules"_a, "fields"_a, "memory"_a,
             "time_steps"_a, "run"_a, "unit"_a.none());
  module.def("take_notes", &TakeNotes);
  module.def("sweep_scenario", &SweepScenario, "schedules"_a, "fields"_a);
}

}  // namespace penstock::python
