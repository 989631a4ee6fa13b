// Measures the CPU time of estimating the training step of one configuration, as `plan`,
// `calibrate` and sweeps do for thousands. Medians of repeated calls; files are read before.
//
//   pricing_speed
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "base/system/allocator.h"
#include "bench/cpu_time.h"
#include "report/table.h"
#include "scenario/estimate/estimate_step.h"
#include "scenario/own_fields.h"

namespace penstock {
namespace {

constexpr double kLeastSeconds = 0.2;  // per row
constexpr std::size_t kLeastRuns = 5;

struct Row {
  const char* schedule;
  int devices, stages, microbatches;
  const char* fields;
};
constexpr Row kRows[] = {
    {"1f1b", 64, 8, 64, "model=llama-3-405b:tensor=8"},
    {"interleaved", 64, 8, 64, "model=llama-3-405b:tensor=8:chunks=8"},
    {"zb1p", 64, 8, 64, "model=llama-3-405b:tensor=8"},
    {"zbv", 64, 8, 64, "model=llama-3-405b:tensor=8"},
    {"1f1b", 64, 64, 128, "model=llama-3-405b"},
    {"1f1b", 1024, 16, 64, "model=llama-3-405b:tensor=8:data_parallel=8:zero=1"},
    {"interleaved", 1024, 16, 64, "model=llama-3-405b:tensor=8:data_parallel=8:zero=1:chunks=4"},
    {"zbv", 1024, 16, 64, "model=llama-3-405b:tensor=8:data_parallel=8:zero=1"},
    {"1f1b", 1024, 16, 64,
     "model=deepseek-v3:implementation=transformer-engine:precision=fp8:tensor=2:data_parallel=32:"
     "expert=32:expert_tensor=1:zero=1"},
    {"1f1b", 1024, 128, 256, "model=gpt:layers=128:dim=8192:heads=64:vocabulary=51200:tensor=8"},
};

template <class Call>
double Measure(Call&& call) {
  return MedianCpuSeconds(kLeastRuns, kLeastSeconds, std::forward<Call>(call));
}

Scenario ScenarioOf(const Row& row) {
  Scenario scenario;
  const auto fields = ParseOwnFields(row.fields);
  PENSTOCK_CHECK(fields && ApplyOwnFields(*fields, scenario), "{}", row.fields);
  scenario.device = "h100";
  scenario.nodes = fmt::format("{}x8", row.devices / 8);
  scenario.sequence = 4096;
  scenario.ranks = row.stages;
  scenario.microbatches = row.microbatches;
  scenario.schedules.push_back({Candidate::Kind::kAlgorithm, row.schedule});
  return scenario;
}

void Print() {
  Table table;
  table.title = "CPU time of estimating a step";
  table.columns = {"schedule",     "devices",      "pipeline ranks",
                   "microbatches", "milliseconds", "model"};
  for (const Row& row : kRows) {
    const Scenario scenario = ScenarioOf(row);
    const auto estimate = [&] {
      const auto estimated = EstimateStep(scenario);
      PENSTOCK_CHECK(estimated, "{}", estimated.error().line());
    };
    estimate();  // reads the files
    const double seconds = Measure(estimate);
    table.rows.push_back({row.schedule, fmt::format("{}", row.devices),
                          fmt::format("{}", row.stages), fmt::format("{}", row.microbatches),
                          fmt::format("{:.2f}", seconds * 1e3), *scenario.model});
  }
  fmt::print("{}", FormatTable(table));
}

}  // namespace
}  // namespace penstock

int main() {
  penstock::KeepFreedMemory();
  try {
    penstock::Print();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "pricing_speed: {}\n", error.what());
    return 1;
  }
}
