#include "cli/schedule_options.h"

#include <charconv>
#include <cmath>

#include "report/primus_dump.h"
#include "schedule/text.h"
#include "schedule/validate.h"

namespace penstock {
namespace {

Result<double> ParseNumber(std::string_view text, std::string_view option) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return InvalidArgument("{}: '{}' is not a number", option, text);
  }
  return value;
}

struct UniformCost {
  double forward = 1, backward_input = 1, backward_weight = 1;
};

// "F" gives all three; "F,I,W" each.
Result<UniformCost> ParseCost(std::string_view text) {
  std::vector<double> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    PENSTOCK_TRY(const double value, ParseNumber(text.substr(begin, end - begin), "--cost"));
    if (value < 0) return InvalidArgument("--cost {}: a time is at least 0", text);
    values.push_back(value);
    begin = end + 1;
  }
  if (values.size() == 1) return UniformCost{values[0], values[0], values[0]};
  if (values.size() == 3) return UniformCost{values[0], values[1], values[2]};
  return InvalidArgument("--cost {}: give F,I,W (times of one rank and microbatch) or one number",
                         text);
}

Result<OverlapRule> ParseOverlap(std::string_view text) {
  if (text == "max") return OverlapRule{OverlapRule::Kind::kMax, 1};
  if (text == "sum") return OverlapRule{OverlapRule::Kind::kSum, 1};
  auto factor = ParseNumber(text, "--overlap");
  if (!factor || *factor < 0) {
    return InvalidArgument("--overlap {}: give max, sum, or a factor of F + B at least 0", text);
  }
  return OverlapRule{OverlapRule::Kind::kFactor, *factor};
}

Result<WeightPolicy> ParseWeights(std::string_view text) {
  if (text == "flush") return WeightPolicy::kFlush;
  if (text == "stashed") return WeightPolicy::kStashed;
  if (text == "double-buffered") return WeightPolicy::kDoubleBuffered;
  return InvalidArgument("--weights {}: give flush, stashed or double-buffered", text);
}

ScheduleParams ParamsOf(const Schedule& schedule, ScheduleParams params) {
  params.ranks = schedule.ranks();
  params.chunks = schedule.placement.chunks();
  params.microbatches = schedule.microbatches;
  params.cuts = schedule.cuts;
  params.steps = schedule.steps;
  return params;
}

}  // namespace

void ScheduleOptions::DefineShape(CLI::App& app) {
  app.add_option("-p,--ranks", ranks, "Pipeline ranks (default 4)");
  app.add_option("-v,--chunks", chunks, "Stages a rank holds (default: the algorithm's)");
  app.add_option("-m,--microbatches", microbatches, "Microbatches of a batch (default 8)");
  app.add_option("--group", group, "Microbatches in flight at a time (interleaved)");
  app.add_option("--cuts", cuts, "Pieces of a microbatch along the sequence");
  app.add_option("--waves", waves, "Waves (hanayo)");
  app.add_option("--steps", steps, "Batches, for schedules without a flush");
  app.add_flag("--split", split, "Split backward in I and W, where the algorithm has both forms");
}

void ScheduleOptions::DefineCosts(CLI::App& app) {
  app.add_option("--cost", cost, "Times F,I,W of one rank and microbatch (default 1,1,1)");
  app.add_option("--comm", comm, "Latency of one transfer between ranks, in the unit of --cost");
  app.add_option("--overlap", overlap, "Cost of an overlapped pair: max, sum or a factor of F + B");
  app.add_option("--memory-limit", memory_limit, "Most activations of one rank and microbatch");
}

void ScheduleOptions::DefineSource(CLI::App& app) {
  app.add_option("-s,--schedule", schedules, "Algorithms, by name; several with commas")
      ->delimiter(',');
  app.add_option(
      "--csv", csv,
      "A schedule's file, or a folder of Primus's pp_rank_N.json, in place of --schedule");
  DefineCsvReading(app);
}

void ScheduleOptions::DefineCsvReading(CLI::App& app) {
  app.add_option("--replicas", replicas, "Chains of stages in the file (default 1)");
  app.add_option("--weights", weights, "Weight policy: flush, stashed or double-buffered");
  app.add_option("--iteration", iteration, "Which iteration of Primus's dumps (default: the last)");
}

void ScheduleOptions::DefineFormat(CLI::App& app) {
  app.add_option("--format", format, "Output: table, csv or json");
  app.add_flag("--json", json, "The same as --format json");
}

Result<OutputFormat> ScheduleOptions::Format() const {
  if (json) {
    if (format && *format != "json") {
      return InvalidArgument("--json and --format {} contradict each other", *format);
    }
    return OutputFormat::kJson;
  }
  if (!format || *format == "table") return OutputFormat::kTable;
  if (*format == "csv") return OutputFormat::kCsv;
  if (*format == "json") return OutputFormat::kJson;
  return InvalidArgument("--format {}: give table, csv or json", *format);
}

Result<ScheduleParams> ScheduleOptions::Params() const {
  ScheduleParams params;
  params.ranks = ranks.value_or(params.ranks);
  params.chunks = chunks.value_or(params.chunks);
  params.microbatches = microbatches.value_or(params.microbatches);
  params.group = group.value_or(params.group);
  params.cuts = cuts.value_or(params.cuts);
  params.waves = waves.value_or(params.waves);
  params.steps = steps.value_or(params.steps);
  params.split = split;
  params.comm = comm.value_or(params.comm);
  if (chunks && *chunks < 1) return InvalidArgument("--chunks {}: at least 1", *chunks);
  if (!(params.comm >= 0) || !std::isfinite(params.comm)) {
    return InvalidArgument("--comm {}: a time is at least 0", params.comm);
  }
  if (cost) {
    PENSTOCK_TRY(const UniformCost times, ParseCost(*cost));
    params.forward = times.forward;
    params.backward_input = times.backward_input;
    params.backward_weight = times.backward_weight;
  }
  if (memory_limit) {
    PENSTOCK_TRY(params.memory_limit, ParseNumber(*memory_limit, "--memory-limit"));
    if (!(*params.memory_limit > 0)) {
      return InvalidArgument("--memory-limit {}: more than 0 is needed", *memory_limit);
    }
  }
  if (stage_costs) {
    params.costs = Costs{*stage_costs, params.comm, {}};
    if (overlap) {
      PENSTOCK_TRY(params.costs->overlap, ParseOverlap(*overlap));
    }
  }
  return params;
}

Result<Costs> ScheduleOptions::CostsFor(const Placement& placement, int row_cuts) const {
  PENSTOCK_TRY(const ScheduleParams params, Params());
  if (params.costs) {
    const std::size_t given = params.costs->stages.size();
    if (given != static_cast<std::size_t>(placement.stages())) {
      return InvalidArgument("costs of {} stages for a schedule of {}: give one entry a stage",
                             given, placement.stages());
    }
    return *params.costs;
  }
  Costs costs = Costs::Uniform(placement, row_cuts, params.forward, params.backward_input,
                               params.backward_weight, params.comm);
  if (overlap) {
    PENSTOCK_TRY(costs.overlap, ParseOverlap(*overlap));
  }
  return costs;
}

Result<ScheduleOptions::LoadedCsv> ScheduleOptions::LoadCsvWithCosts() const {
  if (!csv) return InvalidArgument("no file is given: --csv FILE");
  LoadedCsv loaded;
  if (IsPrimusDump(*csv)) {
    PENSTOCK_TRY(PrimusDump dump, LoadPrimusDump(*csv, iteration));
    loaded.schedule = std::move(dump.schedule);
    if (!cost && !stage_costs) {
      PENSTOCK_TRY(const ScheduleParams params, Params());
      dump.costs.comm = params.comm;
      if (overlap) {
        PENSTOCK_TRY(dump.costs.overlap, ParseOverlap(*overlap));
      }
      loaded.costs = std::move(dump.costs);
    }
  } else {
    if (iteration) return InvalidArgument("--iteration is for a folder of Primus's dumps");
    CsvOptions options;
    options.microbatches = microbatches;
    options.replicas = replicas;
    options.cuts = cuts;
    options.steps = steps;
    if (weights) {
      PENSTOCK_TRY(options.weights, ParseWeights(*weights));
    }
    PENSTOCK_TRY(loaded.schedule, LoadSchedule(*csv, options));
  }
  const Schedule& schedule = loaded.schedule;
  if (ranks && *ranks != schedule.ranks()) {
    return InvalidArgument("{} has {} ranks, not the {} of --ranks", *csv, schedule.ranks(),
                           *ranks);
  }
  if (chunks && *chunks != schedule.placement.chunks()) {
    return InvalidArgument("{} has {} chunks a rank, not the {} of --chunks", *csv,
                           schedule.placement.chunks(), *chunks);
  }
  return loaded;
}

Result<Schedule> ScheduleOptions::LoadCsv() const {
  PENSTOCK_TRY(LoadedCsv loaded, LoadCsvWithCosts());
  return std::move(loaded.schedule);
}

Result<std::vector<ChosenSchedule>> ScheduleOptions::Build() const {
  if (schedules.empty() == !csv) {
    return InvalidArgument(
        "give either --schedule NAME or --csv FILE ('penstock schedules' lists "
        "the names)");
  }
  PENSTOCK_TRY(const ScheduleParams params, Params());
  std::vector<ChosenSchedule> chosen;
  if (csv) {
    PENSTOCK_TRY(LoadedCsv loaded, LoadCsvWithCosts());
    Schedule& schedule = loaded.schedule;
    PENSTOCK_TRY_STATUS(RequireValid(schedule, *csv));
    if (!loaded.costs) {
      PENSTOCK_TRY(loaded.costs, CostsFor(schedule.placement, schedule.cuts));
    }
    PENSTOCK_TRY_STATUS(passes.Apply(schedule, *loaded.costs));
    const ScheduleParams shape = ParamsOf(schedule, params);
    chosen.push_back({*csv, nullptr, shape, std::move(schedule), std::move(*loaded.costs)});
    return chosen;
  }
  for (const std::string& name : schedules) {
    PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(name));
    // One set of options serves a comparison: each algorithm takes those that it reads.
    ScheduleParams shape = schedules.size() > 1 ? DropUnusedKnobs(*algorithm, params) : params;
    PENSTOCK_TRY(Schedule schedule, Generate(name, shape));
    PENSTOCK_TRY(Costs costs, CostsFor(schedule.placement, schedule.cuts));
    shape.chunks = schedule.placement.chunks();
    PENSTOCK_TRY_STATUS(passes.Apply(schedule, costs));
    // A changed schedule is no longer the algorithm's: its closed forms do not hold.
    if (!passes.passes.empty()) algorithm = nullptr;
    chosen.push_back({name, algorithm, shape, std::move(schedule), std::move(costs)});
  }
  return chosen;
}

Status RequireValid(const Schedule& schedule, const std::string& label) {
  const std::vector<Fault> faults = Validate(schedule, {.max_faults = 1});
  if (faults.empty()) return {};
  const Fault& fault = faults.front();
  const std::string where = fault.rank < 0 ? "" : fmt::format("rank {}, ", fault.rank);
  const std::string place = fault.position < 0 ? "" : fmt::format("position {}, ", fault.position);
  return InvalidArgument("{} is not a valid schedule: {}{}{}: {} ('penstock validate' shows all)",
                         label, where, place, fault.action, fault.reason);
}

}  // namespace penstock
