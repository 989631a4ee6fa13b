#include "schedule/schedule.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string_view>

#include "base/index.h"
#include "bindings/bindings.h"
#include "schedule/catalog.h"
#include "schedule/text/text.h"
#include "schedule/validate/validate.h"
#include "simulate/pass_context.h"

namespace penstock::python {
namespace {

using nb::literals::operator""_a;

// Bytes of actions: rows of 16, which NumPy views as penstock.ACTION.
using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<2>>;
using BytesIn = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

Lane& LaneOf(Schedule& schedule, int rank) {
  if (rank < 0 || rank >= schedule.ranks()) {
    throw nb::index_error(
        fmt::format("rank {}: the schedule has {} ranks", rank, schedule.ranks()).c_str());
  }
  return schedule.lanes[Index(rank)];
}

// A copy: a view would dangle once the lane is set to another length.
Bytes LaneBytes(Schedule& schedule, int rank) {
  const Lane& lane = LaneOf(schedule, rank);
  const std::size_t size = lane.size() * sizeof(Action);
  auto* const bytes = new std::uint8_t[size + 1];
  if (size > 0) std::memcpy(bytes, lane.data(), size);
  const nb::capsule owner(bytes,
                          [](void* data) noexcept { delete[] static_cast<std::uint8_t*>(data); });
  return Bytes(bytes, {lane.size(), sizeof(Action)}, owner);
}

void SetLaneBytes(Schedule& schedule, int rank, const BytesIn& bytes) {
  Lane& lane = LaneOf(schedule, rank);
  if (bytes.shape(1) != sizeof(Action)) throw nb::value_error("an action has 16 bytes");
  lane.resize(bytes.shape(0));
  std::memcpy(lane.data(), bytes.data(), bytes.shape(0) * sizeof(Action));
}

// Everything that makes the schedule, for pickle: numbers, then the lanes' bytes.
nb::bytes StateOf(const Schedule& schedule) {
  std::vector<std::int32_t> head = {schedule.microbatches,
                                    schedule.slices,
                                    schedule.steps,
                                    static_cast<int>(schedule.weights),
                                    schedule.vocabulary ? 1 : 0,
                                    schedule.placement.replicas(),
                                    schedule.ranks(),
                                    schedule.stages(),
                                    static_cast<int>(schedule.algorithm.size()),
                                    static_cast<int>(schedule.shared.size())};
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    head.push_back(schedule.placement.rank_of(stage));
  }
  for (const std::vector<int>& stages : schedule.shared) {
    head.push_back(static_cast<int>(stages.size()));
    head.insert(head.end(), stages.begin(), stages.end());
  }
  for (const Lane& lane : schedule.lanes) head.push_back(static_cast<int>(lane.size()));
  std::string bytes(reinterpret_cast<const char*>(head.data()), head.size() * sizeof(head[0]));
  bytes += schedule.algorithm;
  for (const Lane& lane : schedule.lanes) {
    bytes.append(reinterpret_cast<const char*>(lane.data()), lane.size() * sizeof(Action));
  }
  return nb::bytes(bytes.data(), bytes.size());
}

// Takes the numbers and bytes of a state one after the other. Refuses one that is too short.
class StateReader {
 public:
  explicit StateReader(std::string_view left) : left_(left) {}
  std::string_view Take(std::size_t size) {
    if (size > left_.size()) throw nb::value_error("the state of the schedule is damaged");
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }
  int Number(int most = 1 << 30) {
    std::int32_t number = 0;
    std::memcpy(&number, Take(sizeof number).data(), sizeof number);
    if (number < 0 || number > most) throw nb::value_error("the state of the schedule is damaged");
    return number;
  }
  std::vector<int> Numbers(std::size_t count) {
    std::vector<int> numbers;
    for (std::size_t i = 0; i < count; ++i) numbers.push_back(Number());
    return numbers;
  }

 private:
  std::string_view left_;
};

Schedule Restore(const nb::bytes& state) {
  StateReader reader({state.c_str(), state.size()});
  Schedule schedule;
  schedule.microbatches = reader.Number();
  schedule.slices = reader.Number();
  schedule.steps = reader.Number();
  schedule.weights = static_cast<WeightPolicy>(reader.Number(2));
  schedule.vocabulary = reader.Number(1) == 1;
  const int replicas = reader.Number(), ranks = reader.Number();
  const int stages = reader.Number(kMaxStages), name = reader.Number(), shared = reader.Number();
  schedule.placement =
      ValueOf(Placement::FromRanks(reader.Numbers(Index(stages)), ranks, replicas));
  for (int i = 0; i < shared; ++i)
    schedule.shared.push_back(reader.Numbers(Index(reader.Number())));
  const std::vector<int> sizes = reader.Numbers(Index(ranks));
  schedule.algorithm = reader.Take(Index(name));
  for (const int size : sizes) {
    const std::string_view bytes = reader.Take(Index(size) * sizeof(Action));
    Lane& lane = schedule.lanes.emplace_back(Index(size));
    std::memcpy(lane.data(), bytes.data(), bytes.size());
  }
  return schedule;
}

std::string ReprOf(const Schedule& schedule) {
  return fmt::format("<penstock.Schedule {}: {} ranks, {} stages, {} microbatches, {} actions>",
                     schedule.algorithm.empty() ? "of a file" : schedule.algorithm,
                     schedule.ranks(), schedule.stages(), schedule.microbatches,
                     schedule.action_count());
}

void AddFaultType(nb::module_& module) {
  nb::class_<Fault>(module, "Fault", "A fault of a schedule.")
      .def_ro("rank", &Fault::rank, "Its rank, or -1 if it belongs to none.")
      .def_ro("position", &Fault::position,
              "The action's place in its rank's lane, from 0; -1 if the action is missing.")
      .def_ro("action", &Fault::action, "The action as text, \"3B0\".")
      .def_ro("reason", &Fault::reason, "What is wrong, or what it waits for, in one line.")
      .def("__repr__", [](const Fault& fault) {
        return fmt::format("<penstock.Fault rank {}, position {}, {}: {}>", fault.rank,
                           fault.position, fault.action, fault.reason);
      });
}

}  // namespace

void AddScheduleTypes(nb::module_& module) {
  AddFaultType(module);
  nb::class_<Schedule>(module, "Schedule")
      .def_prop_ro("algorithm", [](const Schedule& self) { return self.algorithm; })
      .def_prop_ro("ranks", &Schedule::ranks)
      .def_prop_ro("stages", &Schedule::stages)
      .def_ro("microbatches", &Schedule::microbatches)
      .def_ro("slices", &Schedule::slices)
      .def_ro("steps", &Schedule::steps)
      .def_prop_ro(
          "rank_of_stage",
          [](const Schedule& self) {
            std::vector<int> ranks;
            for (int stage = 0; stage < self.stages(); ++stage) {
              ranks.push_back(self.placement.rank_of(stage));
            }
            return ranks;
          },
          "The rank of each stage.")
      .def("__len__", &Schedule::action_count)
      .def("__repr__", ReprOf)
      .def("_lane_bytes", &LaneBytes, "rank"_a)
      .def("_set_lane_bytes", &SetLaneBytes, "rank"_a, "bytes"_a)
      .def(
          "_validate",
          [](const Schedule& self, int most) { return Validate(self, {.max_faults = most}); },
          "most"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("_state", &StateOf)
      .def("to_csv", &WriteCsv, "The schedule in PyTorch's format, one line per rank.")
      .def("__copy__", [](const Schedule& self) { return Schedule(self); })
      .def("__deepcopy__", [](const Schedule& self, nb::dict) { return Schedule(self); })
      .def(
          "save",
          [](const Schedule& self, const std::string& path) { Require(SaveSchedule(self, path)); },
          "path"_a, "Writes FILE.csv, and FILE.yaml if something is not the default.");
  module.def(
      "_generate",
      [](const std::string& name, const ScheduleParams& params) {
        return ValueOf(Generate(name, params));
      },
      "name"_a, "params"_a, nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "ops",
      [] {
        std::vector<std::string> names;
        for (int op = 0; op < kOpCount; ++op) names.emplace_back(OpText(static_cast<Op>(op)));
        return names;
      },
      "The letters of each op, by number.");
  module.def("_restore", &Restore, "state"_a);
  module.def(
      "_load", [](const std::string& path) { return ValueOf(LoadSchedule(path)); }, "path"_a);
  module.def(
      "_parse",
      [](const std::string& text, std::optional<int> microbatches, std::optional<int> replicas,
         std::optional<int> slices, std::optional<int> steps) {
        return ValueOf(ParseCsv(text, {microbatches, replicas, slices, steps, std::nullopt}));
      },
      "text"_a, "microbatches"_a = nb::none(), "replicas"_a = nb::none(), "slices"_a = nb::none(),
      "steps"_a = nb::none());
}

}  // namespace penstock::python
