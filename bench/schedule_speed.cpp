// Measures how fast schedules are generated and simulated, in million compute actions per second of
// CPU time on one core: generate, lower (add SEND and RECV), validate, simulate, simulate with the
// times of every action, and generate and simulate together. Medians of repeated runs.
//
// bytes: resident memory per action of a schedule and its simulation with times, if large enough to
// measure.
//
// Then, for a large job (p=1024 m=8192, about 50 million actions), measures the seconds to
// generate, validate and simulate it, and the peak resident memory.
//
//   schedule_speed [ALGORITHM...]     default: 1f1b interleaved zb1p zbv-formatted dualpipev
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/system/allocator.h"
#include "bench/cpu_time.h"
#include "report/table.h"
#include "schedule/catalog.h"
#include "schedule/passes/passes.h"
#include "schedule/validate/validate.h"
#include "simulate/simulate.h"

namespace penstock {
namespace {

constexpr double kLeastSeconds = 0.1;  // per measurement
constexpr std::size_t kLeastRuns = 3;
constexpr double kActionsForBytes = 1e6;

struct Size {
  int ranks, microbatches;
};
// From a small job to ten million actions of 1f1b and twice as many of interleaved.
constexpr Size kSizes[] = {{8, 32},     {16, 64},    {32, 256},   {64, 512},
                           {128, 1024}, {256, 2048}, {512, 4096}, {1024, 5120}};

template <class Call>
double Measure(Call&& call) {
  return MedianCpuSeconds(kLeastRuns, kLeastSeconds, std::forward<Call>(call));
}

// Returns a value of /proc/self/status in bytes.
double StatusBytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return 1024 * std::stod(line.substr(name.size() + 1));
  }
  return 0;
}

template <class Call>
double PeakBytes(Call&& call) {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak to the current value
  const double before = StatusBytes("VmRSS");
  call();
  return StatusBytes("VmHWM") - before;
}

template <class T>
T Must(Result<T> result) {
  PENSTOCK_CHECK(result, "{}", result.error().line());
  return std::move(*result);
}

std::vector<std::string> MeasureOne(std::string_view name, const Size& size) {
  ScheduleParams params;
  params.ranks = size.ranks;
  params.microbatches = size.microbatches;
  const auto generate = [&] { return Must(Generate(name, params)); };
  const auto price = [](const Schedule& schedule, Timeline* timeline) {
    const Costs costs = Costs::Uniform(schedule.placement, schedule.slices, 1, 1, 1);
    return Must(Simulate(schedule, costs, {.timeline = timeline}));
  };
  const double bytes = PeakBytes([&] {
    Timeline timeline;
    price(generate(), &timeline);
  });
  const Schedule schedule = generate();
  const auto actions = static_cast<double>(schedule.action_count());
  const auto rate = [&](auto&& call) {
    return fmt::format("{:.1f}", actions / Measure(call) / 1e6);
  };
  std::vector<std::string> row = {std::string(name), fmt::format("{}", size.ranks),
                                  fmt::format("{}", size.microbatches),
                                  fmt::format("{:.0f}", actions)};
  row.push_back(rate([&] { generate(); }));
  row.push_back(rate([&] { AddCommunication(schedule); }));
  row.push_back(rate([&] { PENSTOCK_CHECK(Validate(schedule).empty()); }));
  row.push_back(rate([&] { price(schedule, nullptr); }));
  row.push_back(rate([&] {
    Timeline timeline;
    price(schedule, &timeline);
  }));
  row.push_back(rate([&] { price(generate(), nullptr); }));
  row.push_back(actions >= kActionsForBytes ? fmt::format("{:.1f}", bytes / actions) : "-");
  return row;
}

// Measures one large job. Nothing before it needs more memory, so its peak is the process's.
std::vector<std::string> MeasureLarge(std::string_view name) {
  ScheduleParams params;
  params.ranks = 1024;
  params.microbatches = 8192;
  std::vector<std::string> row = {std::string(name)};
  double total = 0;
  const auto timed = [&](auto&& call) {
    const double begin = CpuSeconds();
    call();
    const double seconds = CpuSeconds() - begin;
    total += seconds;
    row.push_back(fmt::format("{:.2f}", seconds));
  };
  const double bytes = PeakBytes([&] {
    std::optional<Schedule> schedule;
    timed([&] { schedule = Must(Generate(name, params)); });
    row.insert(row.begin() + 1, fmt::format("{}", schedule->action_count()));
    timed([&] { PENSTOCK_CHECK(Validate(*schedule).empty()); });
    const Costs costs = Costs::Uniform(schedule->placement, schedule->slices, 1, 1, 1);
    timed([&] { Must(Simulate(*schedule, costs)); });
  });
  row.push_back(fmt::format("{:.2f}", total));
  row.push_back(fmt::format("{:.2f}", bytes / (1 << 30)));
  return row;
}

void PrintSpeeds(const std::vector<std::string>& names) {
  Table table;
  table.title = "Million compute actions per second on one core";
  table.columns = {"schedule", "ranks",    "microbatches", "actions",      "generate", "lower",
                   "validate", "simulate", "with times",   "gen+simulate", "bytes"};
  for (const std::string& name : names) {
    for (const Size& size : kSizes) table.rows.push_back(MeasureOne(name, size));
  }
  fmt::print("{}", FormatTable(table));
}

void PrintLarge(const std::vector<std::string>& names) {
  Table table;
  table.title = "p=1024 m=8192, seconds on one core";
  table.columns = {"schedule", "actions", "generate", "validate", "simulate", "total", "GiB"};
  for (const std::string& name : names) table.rows.push_back(MeasureLarge(name));
  fmt::print("\n{}", FormatTable(table));
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  penstock::KeepFreedMemory();
  std::vector<std::string> names(argv + 1, argv + argc);
  if (names.empty()) names = {"1f1b", "interleaved", "zb1p", "zbv-formatted", "dualpipev"};
  try {
    penstock::PrintSpeeds(names);
    penstock::PrintLarge(names);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "schedule_speed: {}\n", error.what());
    return 1;
  }
}
