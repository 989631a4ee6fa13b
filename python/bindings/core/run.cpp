// Runs: simulated or measured times, figures, messages and memory.
#include "bindings/core/run.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstddef>

#include "base/index.h"
#include "bindings/core/binding.h"
#include "bindings/core/frozen_schedule.h"
#include "bindings/core/scenario_costs.h"
#include "simulate/memory/memory_over_time.h"
#include "simulate/summary.h"

namespace penstock::python {
namespace {

// What the Python code views as structured arrays.
static_assert(sizeof(Span) == 16 && sizeof(MemoryPoint) == 16 && sizeof(RankResult) == 32);
static_assert(sizeof(SentMessage) == 32 && offsetof(SentMessage, stage) == 2 &&
              offsetof(SentMessage, microbatch) == 4 && offsetof(SentMessage, from) == 8 &&
              offsetof(SentMessage, to) == 12 && offsetof(SentMessage, sent) == 16);

std::unique_ptr<Run> SimulateRun(const FrozenSchedule& schedule, const ScenarioCosts& prices) {
  RequireValid(schedule);
  auto run = std::make_unique<Run>();
  run->schedule = schedule.schedule;
  run->time_unit = prices.time_unit();
  run->memory_unit = prices.memory_unit();
  const bool waits = schedule.steps_wait_for_all;
  const nb::gil_scoped_release release;
  run->costs = ValueOf(prices.PriceOf(*run->schedule)).costs;
  run->costs->steps_wait_for_all = waits;
  run->result = ValueOf(Simulate(*run->schedule, *run->costs));
  return run;
}

using TimesIn = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// The times of a rank, relative to `origin`.
std::vector<Span> SpansOf(const TimesIn& times, std::size_t rank, const Lane& lane, double origin) {
  if (times.shape(1) != 2 || times.shape(0) != lane.size()) {
    Refuse(
        "rank {}: times have the shape ({}, {}); give a start and an end for each of its {} "
        "actions",
        rank, times.shape(0), times.shape(1), lane.size());
  }
  std::vector<Span> spans;
  for (std::size_t i = 0; i < lane.size(); ++i) {
    const double start = times.data()[2 * i], end = times.data()[2 * i + 1];
    const bool sound = std::isfinite(start) && std::isfinite(end) && std::abs(start) <= kMostTime &&
                       std::abs(end) <= kMostTime && start <= end;
    if (!sound) {
      Refuse("rank {}, position {}: starts at {} and ends at {}; give finite times in order", rank,
             i, start, end);
    }
    spans.push_back({start - origin, end - origin});
  }
  return spans;
}

double EarliestOf(const std::vector<TimesIn>& times) {
  double earliest = HUGE_VAL;
  for (const TimesIn& of_rank : times) {
    for (std::size_t i = 0; of_rank.shape(1) == 2 && i < of_rank.shape(0); ++i) {
      earliest = std::min(earliest, of_rank.data()[2 * i]);
    }
  }
  return std::isfinite(earliest) ? earliest : 0;
}

std::unique_ptr<Run> MeasuredRun(const FrozenSchedule& schedule, const std::vector<TimesIn>& times,
                                 const std::optional<ScenarioCosts>& prices,
                                 const std::string& time_unit) {
  RequireValid(schedule);
  if (times.size() != Index(schedule->ranks())) {
    Refuse("times of {} ranks for a schedule of {}; give one array per rank", times.size(),
           schedule->ranks());
  }
  auto run = std::make_unique<Run>();
  run->schedule = schedule.schedule;
  run->time_unit = time_unit;
  run->measured = true;
  if (prices) {
    run->costs = ValueOf(prices->PriceOf(*run->schedule)).costs;
    run->memory_unit = prices->memory_unit();
  }
  const double origin = EarliestOf(times);
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    run->measured_times.spans.push_back(SpansOf(times[rank], rank, schedule->lanes[rank], origin));
  }
  run->result = Summarize(*run->schedule, run->measured_times);
  if (!run->costs) return run;
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    const MemoryCurve curve =
        MemoryOverTime(*run->schedule, run->measured_times, *run->costs, static_cast<int>(rank));
    run->result.ranks[rank].peak_memory = PeakOf(curve);
    run->result.peak_memory = std::max(run->result.peak_memory, PeakOf(curve));
  }
  return run;
}

std::size_t RankOf(const Run& run, int rank) {
  if (rank < 0 || rank >= run.schedule->ranks()) throw nb::index_error("no such rank");
  return Index(rank);
}

// A curve that Python owns.
struct Curve {
  MemoryCurve points;
};

Curve MemoryOf(const Run& run, int rank) {
  const std::size_t index = RankOf(run, rank);
  if (!run.costs) Refuse("memory: the timeline has no costs; give them to Timeline.from_times");
  return {MemoryOverTime(*run.schedule, run.timeline(), *run.costs, static_cast<int>(index))};
}

FrozenSchedule ScheduleOf(const Run& run) {
  return {run.schedule, true, run.costs && run.costs->steps_wait_for_all};
}

// Without the GIL, because both may simulate.
void FindTimes(const Run& run) {
  const nb::gil_scoped_release release;
  run.timeline();
}
void FindMessages(const Run& run) {
  const nb::gil_scoped_release release;
  run.messages();
}

template <class T>
auto Figure(T SimulationResult::*field) {
  return [field](const Run& run) { return run.result.*field; };
}

}  // namespace

const Timeline& Run::timeline() const {
  if (measured) return measured_times;
  std::call_once(timeline_found_,
                 [this] { ValueOf(Simulate(*schedule, *costs, {.timeline = &timeline_})); });
  return timeline_;
}

const std::vector<SentMessage>& Run::messages() const {
  if (measured) return messages_;
  std::call_once(messages_found_, [this] {
    SimulateOptions options;
    options.messages = &messages_;
    ValueOf(Simulate(*schedule, *costs, options));
  });
  return messages_;
}

void AddRunTypes(nb::module_& module) {
  nb::class_<Curve>(module, "Curve").def("points", [](nb::handle self) {
    return BytesOf(nb::cast<const Curve&>(self).points, self);
  });
  nb::class_<Run>(module, "Run", "A schedule with the times of its actions.")
      .def_prop_ro("schedule", &ScheduleOf)
      .def_prop_ro("makespan", Figure(&SimulationResult::makespan))
      .def_prop_ro("bubble", Figure(&SimulationResult::bubble))
      .def_prop_ro("span_bubble", Figure(&SimulationResult::span_bubble))
      .def_prop_ro("peak_memory", Figure(&SimulationResult::peak_memory))
      .def_prop_ro("message_count", Figure(&SimulationResult::messages))
      .def_prop_ro("actions", Figure(&SimulationResult::actions))
      .def_ro("time_unit", &Run::time_unit)
      .def_ro("memory_unit", &Run::memory_unit)
      .def(
          "times",
          [](nb::handle self, int rank) {
            const auto& run = nb::cast<const Run&>(self);
            const std::size_t index = RankOf(run, rank);
            FindTimes(run);
            return BytesOf(run.timeline().spans[index], self);
          },
          "rank"_a)
      .def("per_rank",
           [](nb::handle self) { return BytesOf(nb::cast<const Run&>(self).result.ranks, self); })
      .def("messages",
           [](nb::handle self) {
             const auto& run = nb::cast<const Run&>(self);
             FindMessages(run);
             return BytesOf(run.messages(), self);
           })
      .def("memory", &MemoryOf, "rank"_a, nb::call_guard<nb::gil_scoped_release>());
  module.def("simulate", &SimulateRun, "schedule"_a, "prices"_a);
  module.def("measured", &MeasuredRun, "schedule"_a, "times"_a, "prices"_a.none(), "time_unit"_a);
}

}  // namespace penstock::python
