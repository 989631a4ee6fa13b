// Schedules: their shape, lanes, faults and text.
#include "schedule/schedule.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "base/index.h"
#include "bindings/core/binding.h"
#include "bindings/core/frozen_schedule.h"
#include "schedule/text/text.h"
#include "schedule/validate/validate.h"

namespace penstock::python {
namespace {

// Refuses counts whose product overflows.
Status CheckCounts(const Schedule& schedule) {
  constexpr std::int64_t kMostIndices = (1 << 30) - 1;
  std::int64_t indices = 1;
  for (const std::int64_t count : {schedule.microbatches, schedule.slices, schedule.steps}) {
    if (count < 1 || count > kMostIndices / indices) {
      return InvalidArgument(
          "{} microbatches x {} slices x {} steps: give at least 1 of each, and at most {} in all",
          schedule.microbatches, schedule.slices, schedule.steps, kMostIndices);
    }
    indices *= count;
  }
  return {};
}

Lane LaneOf(const BytesIn& bytes, std::size_t rank) {
  if (bytes.shape(1) != sizeof(Action)) Refuse("rank {}: an action has 16 bytes", rank);
  Lane lane(bytes.shape(0));
  if (!lane.empty()) std::memcpy(lane.data(), bytes.data(), lane.size() * sizeof(Action));
  return lane;
}

// What determines a schedule, apart from its lanes.
struct Shape {
  std::string algorithm;
  std::vector<int> rank_of_stage;
  int replicas = 1;
  int microbatches = 0, slices = 1, steps = 1;
  std::string weights = "flush";
  bool vocabulary = false;
  std::vector<std::vector<int>> shared;
  std::vector<int> frozen, adapters;
  bool steps_wait_for_all = false;
};

Status CheckShared(const Schedule& schedule) {
  for (const std::vector<int>& stages : schedule.shared) {
    for (std::size_t i = 0; i < stages.size(); ++i) {
      const bool ascends = i == 0 || stages[i - 1] < stages[i];
      if (ascends && stages[i] >= 0 && stages[i] < schedule.stages()) continue;
      return InvalidArgument("shared: stage {}: give stages of 0 to {} in ascending order",
                             stages[i], schedule.stages() - 1);
    }
  }
  return {};
}

FrozenSchedule Freeze(Schedule schedule, bool steps_wait_for_all = false) {
  return {std::make_shared<const Schedule>(std::move(schedule)), false, steps_wait_for_all};
}

FrozenSchedule Build(const Shape& shape, const std::vector<BytesIn>& lanes) {
  if (lanes.empty()) Refuse("lanes: a schedule needs at least one rank; give one lane per rank");
  if (shape.rank_of_stage.empty()) Refuse("rank_of_stage: a schedule needs at least one stage");
  if (shape.rank_of_stage.size() > kMaxStages)
    Refuse("rank_of_stage: at most {} stages", kMaxStages);
  Schedule schedule;
  schedule.algorithm = shape.algorithm;
  schedule.placement = ValueOf(
      Placement::FromRanks(shape.rank_of_stage, static_cast<int>(lanes.size()), shape.replicas));
  schedule.microbatches = shape.microbatches;
  schedule.slices = shape.slices;
  schedule.steps = shape.steps;
  schedule.weights = ValueOf(ParseWeights(shape.weights));
  schedule.vocabulary = shape.vocabulary;
  schedule.shared = shape.shared;
  schedule.backward =
      ValueOf(BackwardsOf({shape.frozen, shape.adapters}, schedule.placement.chain_length()));
  for (const BytesIn& lane : lanes) schedule.lanes.push_back(LaneOf(lane, schedule.lanes.size()));
  Require(CheckShared(schedule));
  Require(CheckCounts(schedule));
  return Freeze(std::move(schedule), shape.steps_wait_for_all);
}

Shape ShapeOf(const FrozenSchedule& self) {
  Shape shape{self->algorithm,
              {},
              self->placement.replicas(),
              self->microbatches,
              self->slices,
              self->steps,
              std::string(ToText(self->weights)),
              self->vocabulary,
              self->shared,
              UntrainedOf(*self).frozen,
              UntrainedOf(*self).adapters,
              self.steps_wait_for_all};
  for (int stage = 0; stage < self->stages(); ++stage) {
    shape.rank_of_stage.push_back(self->placement.rank_of(stage));
  }
  return shape;
}

Bytes LaneBytes(nb::handle self, int rank) {
  const auto& schedule = nb::cast<const FrozenSchedule&>(self);
  if (rank < 0 || rank >= schedule->ranks()) throw nb::index_error("no such rank");
  return BytesOf(schedule->lanes[Index(rank)], self);
}

bool Equal(const FrozenSchedule& a, const FrozenSchedule& b) {
  return a->algorithm == b->algorithm && a->placement == b->placement &&
         a->microbatches == b->microbatches && a->slices == b->slices && a->steps == b->steps &&
         a->weights == b->weights && a->vocabulary == b->vocabulary && a->shared == b->shared &&
         a->backward == b->backward && a.steps_wait_for_all == b.steps_wait_for_all &&
         a->lanes == b->lanes;
}

std::vector<Fault> Faults(const FrozenSchedule& self, int most) {
  if (most < 1) Refuse("most {}: at least 1", most);
  const std::shared_ptr<const Schedule> schedule = self.schedule;
  std::vector<Fault> faults;
  {
    const nb::gil_scoped_release release;
    faults = Validate(*schedule, {.max_faults = most});
  }
  self.valid = faults.empty();
  return faults;
}

FrozenSchedule Checked(Result<Schedule> read) { return Freeze(ValueOf(std::move(read))); }

std::vector<Action> ParseActions(const std::vector<std::string>& cells) {
  std::vector<Action> actions;
  for (const std::string& cell : cells) actions.push_back(ValueOf(ParseAction(cell)));
  return actions;
}

void AddFault(nb::module_& module) {
  nb::class_<Fault>(module, "Fault", "A fault of a schedule.")
      .def_ro("rank", &Fault::rank, "Its rank, or -1 if it belongs to none.")
      .def_ro("position", &Fault::position,
              "The action's position in its rank's lane, from 0; -1 if the action is missing.")
      .def_ro("action", &Fault::action, "The action as text, \"3B0\".")
      .def_ro("reason", &Fault::reason, "What is wrong, or what it waits for, in one line.")
      .def("__repr__",
           [](const Fault& fault) { return fmt::format("<penstock.Fault {}>", Line(fault)); });
}

void AddShape(nb::module_& module) {
  nb::class_<Shape>(module, "Shape", "What determines a schedule, apart from its lanes.")
      .def(nb::init<>())
      .def_rw("algorithm", &Shape::algorithm)
      .def_rw("rank_of_stage", &Shape::rank_of_stage)
      .def_rw("replicas", &Shape::replicas)
      .def_rw("microbatches", &Shape::microbatches)
      .def_rw("slices", &Shape::slices)
      .def_rw("steps", &Shape::steps)
      .def_rw("weights", &Shape::weights)
      .def_rw("vocabulary", &Shape::vocabulary)
      .def_rw("shared", &Shape::shared)
      .def_rw("frozen", &Shape::frozen)
      .def_rw("adapters", &Shape::adapters)
      .def_rw("steps_wait_for_all", &Shape::steps_wait_for_all);
}

// Functions that return schedules that they check.
void AddReaders(nb::module_& module) {
  module.def(
      "load_csv", [](const std::string& path) { return Checked(LoadSchedule(path)); }, "path"_a,
      nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "parse_csv",
      [](const std::string& text, std::optional<int> microbatches, std::optional<int> replicas,
         std::optional<int> slices, std::optional<int> steps,
         const std::optional<std::string>& weights, std::optional<std::vector<int>> frozen,
         std::optional<std::vector<int>> adapters) {
        CsvOptions options{microbatches,      replicas,           slices, steps, std::nullopt,
                           std::move(frozen), std::move(adapters)};
        if (weights) options.weights = ValueOf(ParseWeights(*weights));
        return Checked(ParseCsv(text, options));
      },
      "text"_a, "microbatches"_a.none(), "replicas"_a.none(), "slices"_a.none(), "steps"_a.none(),
      "weights"_a.none(), "frozen"_a.none(), "adapters"_a.none(),
      nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "without_backward",
      [](const FrozenSchedule& self, std::vector<int> frozen, std::vector<int> adapters) {
        return Checked(WithoutBackward(*self, {std::move(frozen), std::move(adapters)}));
      },
      "schedule"_a, "frozen"_a, "adapters"_a, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

void RequireValid(const FrozenSchedule& schedule) {
  if (schedule.valid) return;
  const std::vector<Fault> faults = Faults(schedule, 1);
  if (faults.empty()) return;
  Refuse("not a valid schedule: {} (validate() returns all faults)", Line(faults.front()));
}

void AddScheduleTypes(nb::module_& module) {
  AddFault(module);
  AddShape(module);
  nb::class_<FrozenSchedule>(module, "Schedule", "A schedule that never changes.")
      .def_prop_ro("shape", &ShapeOf)
      .def_prop_ro("ranks", [](const FrozenSchedule& self) { return self->ranks(); })
      .def_prop_ro("chunks", [](const FrozenSchedule& self) { return self->placement.chunks(); })
      .def_prop_ro("actions", [](const FrozenSchedule& self) { return self->action_count(); })
      .def("lane", &LaneBytes, "rank"_a)
      .def("equals", &Equal, "other"_a)
      .def("validate", &Faults, "most"_a)
      .def("check", &RequireValid)
      .def(
          "to_csv", [](const FrozenSchedule& self) { return WriteCsv(*self); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "save",
          [](const FrozenSchedule& self, const std::string& path) {
            Require(SaveSchedule(*self, path));
          },
          "path"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("require_torch_ops",
           [](const FrozenSchedule& self) { Require(RequireTorchOps(*self)); });
  module.def("build", &Build, "shape"_a, "lanes"_a);
  AddReaders(module);
  module.def(
      "parse_actions",
      [](const std::vector<std::string>& cells) {
        const std::vector<Action> actions = ParseActions(cells);
        return nb::bytes(reinterpret_cast<const char*>(actions.data()),
                         actions.size() * sizeof(Action));
      },
      "cells"_a, "The actions of these cells of a CSV, 16 bytes each.");
  module.def(
      "action_texts",
      [](const BytesIn& lane) {
        std::vector<std::string> texts;
        for (const Action& action : LaneOf(lane, 0)) {
          const bool known = action.first.op < Op::kNone && action.second.op <= Op::kNone;
          texts.push_back(known ? ToText(action) : "?");
        }
        return texts;
      },
      "lane"_a);
  module.def(
      "op_names",
      [] {
        std::vector<std::string> names;
        for (int op = 0; op < kOpCount; ++op) names.emplace_back(OpText(static_cast<Op>(op)));
        return names;
      },
      "The letters of each op, by number.");
}

}  // namespace penstock::python
