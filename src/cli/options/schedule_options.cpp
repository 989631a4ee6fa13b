#include "cli/options/schedule_options.h"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "base/index.h"
#include "base/text/nearest.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/units.h"
#include "cli/help/offered_values.h"
#include "cli/options/costs/stage_costs.h"
#include "cli/options/option_effects.h"
#include "cli/options/option_values.h"
#include "interop/traces/recorded_run.h"
#include "schedule/text/cost_text.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

constexpr std::array<std::string_view, 3> kFormatNames = {"table", "csv", "json"};

// `status` of the value that an option was given.
Status Of(std::string_view option, std::string_view value, const Status& status) {
  if (status) return {};
  return InvalidArgument("{} {}: {}", option, value, status.error().line());
}

// `read`, with the option in front of its error.
template <class T>
Result<T> OfOption(std::string_view option, Result<T> read) {
  if (read) return read;
  return InvalidArgument("{} {}", option, read.error().line());
}

// "4GiB", or a number of bytes.
Result<double> ParseSize(const std::string& text, std::string_view option) {
  const Result<double> plain = ParseNumber(text);
  const Result<std::int64_t> bytes = ParseBytes(text);
  const double size = plain ? *plain : bytes ? static_cast<double>(*bytes) : 0;
  if (!(size > 0)) {
    return InvalidArgument("{} {}: give bytes, or a number with its unit (4GiB)", option,
                           Quote(text));
  }
  PENSTOCK_TRY_STATUS(Of(option, Quote(text), CheckMemory(size)));
  return size;
}

// The unit that the text of a limit is in: "6GiB" is `limit` of the costs' units.
MemoryUnit UnitOf(std::string_view text, double limit) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view name = text.substr(Index(end - text.data()));
  name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
  return {std::string(name), number / limit};
}

}  // namespace

void ScheduleOptions::DefineSource(CLI::App& app) {
  app.option_defaults()->group("Schedules");
  Offer(app.add_option(
            "SCHEDULE", words,
            "A name ('penstock schedules' lists them), a .csv file, a Chrome trace (.json, "
            ".json.gz or a folder with one per rank) or a folder of Primus's pp_rank_N.json, "
            "with its own options after a colon if need be (interleaved:v=4:m=64); and at most "
            "one .yaml file that has these options as keys"),
        [] { return OfferedSchedules(OfferedPaths::kFiles); });
  // Without extra arguments: 'simulate -s 1f1b config.yaml' names one schedule.
  Offer(app.add_option("-s,--schedule", schedules, "The same as SCHEDULE; commas separate several")
            ->allow_extra_args(false)
            ->type_name("NAME"),
        [] { return OfferedSchedules(OfferedPaths::kNone); });
  app.add_option("--csv", csv, "A schedule's CSV file, whatever its ending")
      ->allow_extra_args(false)
      ->type_name("FILE");
  AddInt(app, "--replicas", replicas, "Replicas of the model in a CSV file (default 1)");
  Offer(AddText(app, "--weights", weights,
                "Weight policy of a CSV file: flush, stashed or double-buffered (default flush)")
            ->type_name("POLICY"),
        {kWeightPolicyNames.begin(), kWeightPolicyNames.end()});
  AddInt(app, "--iteration", iteration,
         "Step of a trace or of Primus's dumps (default: the last complete one)");
  AddText(app, "--trace-rule", trace_rule,
          "Which events of a trace are the pipeline's (default: those of torch or Megatron-LM)")
      ->type_name("FILE");
}

void ScheduleOptions::DefineSchedules(CLI::App& app) {
  DefineSource(app);
  DefineShape(app);
  DefineCosts(app);
  passes.Define(app);
}

void ScheduleOptions::DefineShape(CLI::App& app) {
  app.option_defaults()->group("Shape");
  AddInt(app, "-p,--ranks", ranks, "Pipeline ranks (default 4)");
  AddInt(app, "-v,--chunks", chunks, "Stages per rank (default: the algorithm's)");
  AddInt(app, "-m,--microbatches", microbatches,
         "Microbatches per batch (default 8), of each replica if there are several (--data)");
  AddInt(app, "--group", group, "Microbatches in flight at a time (interleaved)");
  AddInt(app, "--slices", slices, "Slices of a microbatch along the sequence");
  AddInt(app, "--waves", waves, "Waves (hanayo)");
  AddInt(app, "--steps", steps, "Batches, for schedules without a flush");
  app.add_flag("--split", split, "Split backward into I and W, if the algorithm has both forms");
  Offer(
      AddText(app, "--objective", objective,
              "What a search shortens: makespan (default), or span, the longest time from a rank's "
              "first to its last action, which counts if steps do not wait for all ranks")
          ->type_name("WHAT"),
      {kObjectiveNames.begin(), kObjectiveNames.end()});
}

void ScheduleOptions::DefineCosts(CLI::App& app) {
  app.option_defaults()->group("Costs");
  AddText(app, "--cost", cost,
          "Times of one rank and microbatch: forward, backward for the input, backward for the "
          "weights; one number stands for all three (default 1,1,1). A fourth number is the part "
          "of the activations that W keeps after I (default 1)")
      ->type_name("F,I,W[,KEPT]");
  AddTime(
      app, "--comm", comm,
      "Latency of a transfer between ranks, in the unit of --cost; with --model, a time with its "
      "unit (5ms)");
  Offer(AddText(app, "--overlap", overlap,
                "Time of an overlapped forward and backward: max, sum or a factor of F + B")
            ->type_name("RULE"),
        {kOverlapNames.begin(), kOverlapNames.end()});
  DefineSpeed(app);
  DefineLengths(app);
  AddText(app, "--memory-limit", memory_limit,
          "Memory limit per rank: activations of one rank and microbatch, or a size (6GiB) if the "
          "costs are in bytes")
      ->type_name("LIMIT");
  AddText(app, "--activation-bytes", activation_bytes,
          "Size of the activations of one rank and microbatch (4GiB); memory is then in bytes")
      ->type_name("SIZE");
  AddText(app, "--message-bytes", message_bytes,
          "Size of the tensor between two stages for a microbatch (16MiB)")
      ->type_name("SIZE");
  priced_model.Define(app);
}

void ScheduleOptions::DefineFormat(CLI::App& app) {
  app.option_defaults()->group("Output");
  Offer(AddText(app, "--format", format, "Output as table, csv or json")->type_name("FORMAT"),
        {kFormatNames.begin(), kFormatNames.end()});
  app.add_flag("--json", json, "The same as --format json");
}

Result<OutputFormat> ScheduleOptions::Format() const {
  if (json) {
    if (format && *format != "json") {
      return InvalidArgument("--json and --format {} contradict each other", Quote(*format));
    }
    return OutputFormat::kJson;
  }
  if (!format || *format == "table") return OutputFormat::kTable;
  if (*format == "csv") return OutputFormat::kCsv;
  if (*format == "json") return OutputFormat::kJson;
  return InvalidArgument("--format {}: give table, csv or json{}", Quote(*format),
                         Suggestion(*format, {kFormatNames.begin(), kFormatNames.end()}));
}

Status ScheduleOptions::CheckCounts() const {
  const std::pair<const char*, const std::optional<int>*> counts[] = {
      {"--ranks", &ranks}, {"--chunks", &chunks},     {"--microbatches", &microbatches},
      {"--group", &group}, {"--slices", &slices},     {"--waves", &waves},
      {"--steps", &steps}, {"--replicas", &replicas}, {"--offload-sharing", &offload_sharing}};
  for (const auto& [option, count] : counts) {
    if (*count && **count < 1) return InvalidArgument("{} {}: at least 1", option, **count);
  }
  return {};
}

PlainTime ScheduleOptions::plain_time() const {
  if (priced_model.given() && !time_unit) return PlainTime::kAmbiguous;
  const bool recorded = std::ranges::any_of(candidates, [](const Candidate& candidate) {
    return candidate.kind == Candidate::Kind::kFile && IsRecordedRun(candidate.name);
  });
  return time_unit || (recorded && !says_costs()) ? PlainTime::kSeconds : PlainTime::kUnitOfCosts;
}

Status ScheduleOptions::CheckTimeUnits() const {
  if (comm) PENSTOCK_TRY_STATUS(CheckUnit("--comm", *comm, plain_time()));
  return launch ? CheckUnit("--launch", *launch, plain_time()) : Status();
}

Result<ScheduleParams> ScheduleOptions::Params() const {
  PENSTOCK_TRY_STATUS(CheckCounts());
  ScheduleParams params;
  params.ranks = ranks.value_or(params.ranks);
  if (priced_model.given() && !ranks) {
    PENSTOCK_TRY(params.ranks, priced_model.Ranks());
  }
  params.chunks = chunks.value_or(params.chunks);
  params.microbatches = microbatches.value_or(params.microbatches);
  params.group = group.value_or(params.group);
  params.slices = slices.value_or(params.slices);
  params.waves = waves.value_or(params.waves);
  params.steps = steps.value_or(params.steps);
  params.split = split;
  PENSTOCK_TRY_STATUS(CheckTimeUnits());
  if (comm) params.comm = comm->value;
  PENSTOCK_TRY_STATUS(Of("--comm", fmt::format("{}", params.comm), CheckTime(params.comm)));
  if (!topology.empty()) {
    PENSTOCK_TRY(const double bytes, MessageBytes(params.slices));
    PENSTOCK_TRY(params.comm, LongestMessage(params.ranks, bytes));
  }
  if (cost) {
    PENSTOCK_TRY(const UniformCost times, OfOption("--cost", ParseCost(*cost)));
    params.forward = times.forward;
    params.backward_input = times.backward_input;
    params.backward_weight = times.backward_weight;
    params.kept_for_weight = times.kept_for_weight;
  }
  if (objective) {
    PENSTOCK_TRY(params.objective, OfOption("--objective", ParseObjective(*objective)));
  }
  if (overlap) {
    PENSTOCK_TRY(params.overlap, OfOption("--overlap", ParseOverlap(*overlap)));
  }
  if (memory_limit) {
    PENSTOCK_TRY(params.memory_limit, Limit("--memory-limit", *memory_limit));
    params.memory_unit = UnitOf(*memory_limit, *params.memory_limit);
  }
  PENSTOCK_TRY_STATUS(Lengths());
  PENSTOCK_TRY_STATUS(RunsWithJitter());
  if (stage_costs) {
    Costs& costs = params.costs.emplace();
    costs.stages = *stage_costs;
    costs.comm = params.comm;
    costs.overlap = params.overlap;
  }
  return params;
}

Result<Costs> ScheduleOptions::CostsFor(const Placement& placement, int slices) const {
  PENSTOCK_TRY(ScheduleParams params, Params());
  if (costs_by_layer()) {
    params.ranks = placement.ranks();
    return CostsOfLayers(placement.chain_length(), placement.replicas(), slices, params);
  }
  if (params.costs) {
    const std::size_t given = params.costs->stages.size();
    if (given != Index(placement.stages())) {
      return InvalidArgument(
          "stage_costs has {} stages, the schedule {}; give one entry per stage, or layer_costs, "
          "which fit any number",
          given, placement.stages());
    }
    return *params.costs;
  }
  Costs costs = Costs::Uniform(placement, slices, params.forward, params.backward_input,
                               params.backward_weight, params.comm, params.kept_for_weight);
  costs.overlap = params.overlap;
  return costs;
}

Status ScheduleOptions::ReadSources() {
  std::vector<std::string> all = words;
  all.insert(all.end(), schedules.begin(), schedules.end());
  PENSTOCK_TRY(ReadWords read, ReadCandidates(all));
  candidates = std::move(read.candidates);
  config = std::move(read.config);
  for (const std::string& path : csv) candidates.push_back({Candidate::Kind::kFile, path});
  return {};
}

Result<double> ScheduleOptions::Limit(const std::string& option, const std::string& text) const {
  const std::string quoted = Quote(text);
  const Result<double> count = ParseNumber(text);
  const Result<std::int64_t> bytes = ParseBytes(text);
  if (!count && !bytes) {
    return InvalidArgument(
        "{} {}: give activations of one rank and microbatch, or a size with its unit "
        "(6GiB)",
        option, quoted);
  }
  const double limit = count ? *count : static_cast<double>(*bytes);
  if (!(limit > 0)) return InvalidArgument("{} {}: more than 0 is needed", option, quoted);
  PENSTOCK_TRY_STATUS(Of(option, quoted, CheckMemory(limit)));
  if (in_bytes()) {
    if (bytes) return limit;
    return InvalidArgument(
        "{} {}: the stages' activations are in bytes; give a size with its unit "
        "(6GiB)",
        option, quoted);
  }
  if (count) return limit;
  if (!activation_bytes) {
    return InvalidArgument(
        "{} {}: the costs are not in bytes; give activations of one rank and "
        "microbatch (6), or their size by --activation-bytes",
        option, quoted);
  }
  PENSTOCK_TRY(const double activation, ParseSize(*activation_bytes, "--activation-bytes"));
  return limit / activation;
}

Result<double> ScheduleOptions::MessageBytes(int slices) const {
  if (!message_bytes) return 0;
  PENSTOCK_TRY(const double size, ParseSize(*message_bytes, "--message-bytes"));
  return size / slices;
}

Status ScheduleOptions::SetUnits(ChosenSchedule& chosen) const {
  PENSTOCK_TRY(chosen.costs.message_bytes, MessageBytes(chosen.params.slices));
  if (in_bytes()) chosen.memory_unit = "B";
  if (activation_bytes) {
    if (stage_costs || costs_by_layer() || in_bytes()) {
      return InvalidArgument(
          "--activation-bytes has no effect here: the costs say what each stage "
          "holds; leave it out");
    }
    PENSTOCK_TRY(chosen.activation, ParseSize(*activation_bytes, "--activation-bytes"));
    chosen.memory_unit = "B";
  }
  if (memory_limit) {
    PENSTOCK_TRY(const double limit, Limit("--memory-limit", *memory_limit));
    chosen.memory_limit = limit * chosen.activation;
  }
  return {};
}

Status ScheduleOptions::SetCosts(ChosenSchedule& chosen, Costs costs) const {
  PENSTOCK_TRY(PassOptions in_activations,
               passes.WithLimits([&](const std::string& option, const std::string& text) {
                 return Limit(option, text);
               }));
  PENSTOCK_TRY(in_activations, in_activations.WithTimes(plain_time()));
  if (message_bytes) costs.message_bytes = chosen.costs.message_bytes;  // else a dump's, or none
  PENSTOCK_TRY_STATUS(SetTransfers(costs));
  PENSTOCK_TRY_STATUS(SetLengths(chosen, costs));
  PENSTOCK_TRY_STATUS(SetSpeed(chosen.schedule.placement, costs));
  PENSTOCK_TRY_STATUS(in_activations.SetPrices(chosen.schedule, costs));
  PENSTOCK_TRY_STATUS(SetCollectives(chosen, in_activations, costs));
  PENSTOCK_TRY_STATUS(in_activations.Run(chosen.schedule, costs));
  costs.ScaleMemory(chosen.activation);
  PENSTOCK_TRY_STATUS(DescribeCosts(chosen));
  chosen.costs = std::move(costs);
  // A changed schedule is no longer the algorithm's: its closed forms do not hold.
  if (!passes.passes.empty()) chosen.algorithm = nullptr;
  return {};
}

Result<ChosenSchedule> ScheduleOptions::Choose(const Algorithm& algorithm, Knobs knobs) const {
  PENSTOCK_TRY(ScheduleParams asked, Params());
  if (knobs == Knobs::kThoseItReads) asked = DropUnusedKnobs(algorithm, asked);
  // The figures show which schedules stay within it.
  if (knobs == Knobs::kAllButLimit && !algorithm.knobs.memory_limit) asked.memory_limit.reset();
  PENSTOCK_TRY_STATUS(CheckStageCosts(algorithm, asked));
  ChosenSchedule chosen;
  chosen.label = algorithm.name;
  chosen.algorithm = &algorithm;
  chosen.heeds_limit = algorithm.knobs.memory_limit;
  PENSTOCK_TRY(chosen.params, CheckParams(algorithm, asked));
  if (costs_by_layer()) {
    const ScheduleParams& checked = chosen.params;
    PENSTOCK_TRY(asked.costs, CostsOfLayers(checked.ranks * checked.chunks,
                                            algorithm.knobs.replicas, checked.slices, checked));
    asked.costs->by_slice.clear();  // searches plan with means
    PENSTOCK_TRY_STATUS(LimitByDevice(algorithm, checked, asked));
    PENSTOCK_TRY(chosen.params, CheckParams(algorithm, asked));
  }
  if (changes_speed() || microbatch_lengths) {
    PENSTOCK_TRY_STATUS(PlanWithSpeed(algorithm, chosen.params, asked));
    PENSTOCK_TRY(chosen.params, CheckParams(algorithm, asked));
  }
  PENSTOCK_TRY_STATUS(SetUnits(chosen));
  return chosen;
}

Status ScheduleOptions::Make(ChosenSchedule& chosen) const {
  PENSTOCK_TRY(chosen.schedule, Generate(chosen.algorithm->name, chosen.params));
  PENSTOCK_TRY(Costs costs, CostsFor(chosen.schedule.placement, chosen.schedule.slices));
  return SetCosts(chosen, std::move(costs));
}

Result<ChosenSchedule> ScheduleOptions::BuildAlgorithm(const std::string& name, Knobs knobs) const {
  PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(name));
  PENSTOCK_TRY(ChosenSchedule made, Choose(*algorithm, knobs));
  made.label = name;
  PENSTOCK_TRY_STATUS(Make(made));
  return made;
}

Result<ScheduleOptions> ScheduleOptions::For(const Candidate& candidate) const {
  ScheduleOptions own = *this;
  if (compares && candidate.kind == Candidate::Kind::kAlgorithm) {
    PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(candidate.name));
    DropUnread(*algorithm, own);
  }
  PENSTOCK_TRY_STATUS(ApplyCandidateOptions(candidate.options, own));
  return own;
}

Result<ChosenSchedule> ScheduleOptions::BuildOne(const Candidate& candidate) const {
  PENSTOCK_TRY(const ScheduleOptions own, For(candidate));
  // A command that prices marks what is above the limit.
  const Knobs knobs = compares || prices ? Knobs::kAllButLimit : Knobs::kAll;
  PENSTOCK_TRY(ChosenSchedule built, candidate.kind == Candidate::Kind::kFile
                                         ? own.BuildFile(candidate.name)
                                         : own.BuildAlgorithm(candidate.name, knobs));
  built.label = candidate.label();
  PENSTOCK_TRY(built.jitter, own.RunsWithJitter());
  return built;
}

Result<std::vector<ChosenSchedule>> ScheduleOptions::BuildAll() const {
  PENSTOCK_TRY_STATUS(CheckCounts());
  if (candidates.empty()) {
    return InvalidArgument(
        "no schedule is given: name one ('penstock schedules' lists them), or give a CSV file or "
        "a YAML configuration");
  }
  PENSTOCK_TRY(auto recorded, BuildRecorded());
  std::vector<ChosenSchedule> chosen;
  for (const Candidate& candidate : candidates) {
    if (recorded && chosen.size() == recorded->first) {
      chosen.push_back(recorded->second);
      continue;
    }
    auto built = recorded && candidate.kind == Candidate::Kind::kAlgorithm
                     ? BuildNextTo(recorded->second, candidate)
                     : BuildOne(candidate);
    if (!built && !candidate.options.empty()) {
      return MakeError(built.error().code, "{}: {}", Quote(candidate.label()),
                       built.error().line());
    }
    if (!built) return tl::unexpected(std::move(built).error());
    chosen.push_back(std::move(*built));
  }
  PENSTOCK_TRY_STATUS(RefuseUnreadPrices(*this, chosen));
  return chosen;
}

Result<std::vector<ChosenSchedule>> ScheduleOptions::Build() const {
  auto chosen = BuildAll();
  if (chosen) return chosen;
  return tl::unexpected(NameAsGiven(std::move(chosen).error(), given_in, "schedule"));
}

}  // namespace penstock
