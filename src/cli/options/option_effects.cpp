#include "cli/options/option_effects.h"

#include <algorithm>
#include <functional>
#include <initializer_list>

#include "base/text/quote.h"
#include "interop/primus/dump.h"
#include "interop/traces/recorded_run.h"

namespace penstock {
namespace {

Status HasNoEffect(const std::string& option, const std::string& why) {
  return InvalidArgument("{} has no effect here: {}; leave it out", option, why);
}

bool OneOf(const std::string& option, std::initializer_list<std::string_view> options) {
  return std::find(options.begin(), options.end(), option) != options.end();
}

bool Contains(const std::vector<std::string>& options, const std::string& option) {
  return std::find(options.begin(), options.end(), option) != options.end();
}

// Where a candidate comes from: an algorithm, or a file.
struct Source {
  const Algorithm* algorithm = nullptr;
  bool is_dump = false;
  ScheduleOptions options;            // with its own in place of the command's
  std::vector<std::string> own = {};  // which these are
  bool is_trace = false;
};

// Why a source does not read an option; null if it does.
const char* WhyUnreadByFile(const Source& source, const std::string& option) {
  if (OneOf(option, {"--group", "--waves", "--split", "--objective"})) {
    return "the schedule is in a file, no algorithm makes it";
  }
  if (option == "--trace-rule" && !source.is_trace) return "it reads recorded traces";
  if (!source.is_dump && !source.is_trace) {
    return option == "--iteration" ? "it chooses a step of a trace or of Primus's dumps" : nullptr;
  }
  if (OneOf(option, {"--slices", "--steps", "--replicas", "--weights"})) {
    return "a trace or dump holds one batch of whole microbatches and one chain of stages";
  }
  return nullptr;
}

const char* WhyUnreadByAlgorithm(const Algorithm& algorithm, const ScheduleOptions& options,
                                 const std::string& option) {
  if (OneOf(option, {"--replicas", "--weights", "--iteration", "--trace-rule"})) {
    return "it says what a schedule's file does not; an algorithm knows it";
  }
  const Knobs& knobs = algorithm.knobs;
  const bool read = option == "--chunks"
                        ? *options.chunks >= knobs.min_chunks && *options.chunks <= knobs.max_chunks
                    : option == "--group"        ? knobs.group
                    : option == "--slices"       ? knobs.slices || *options.slices == 1
                    : option == "--waves"        ? knobs.waves
                    : option == "--steps"        ? knobs.steps || *options.steps == 1
                    : option == "--split"        ? knobs.split
                    : option == "--objective"    ? knobs.objective
                    : option == "--memory-limit" ? knobs.memory_limit || options.prices  // marked
                                                 : true;
  return read ? nullptr : "the algorithm does not read it";
}

// A command that only orders actions reads the prices that may change their order.
const char* WhyUnreadWithoutPrices(const ScheduleOptions& options, const Source& source,
                                   const std::string& option) {
  constexpr const char* kWhy = "this command orders actions and prices none";
  if (option == "--message-bytes") return kWhy;
  const bool from_file = source.algorithm == nullptr;
  if (from_file && option == "--memory-limit") return kWhy;
  if (!options.passes.passes.empty()) return nullptr;
  if (OneOf(option, {"--price", "--transfers", "--offload-sharing"})) return kWhy;
  if (from_file && OneOf(option, {"--cost", "--comm", "--overlap", "--launch", "--slow-rank",
                                  "--microbatch-lengths"})) {
    return kWhy;
  }
  if (from_file && Contains(options.priced_model.Given(), option)) return kWhy;
  const bool converts_limit = !from_file && options.memory_limit.has_value();
  return option == "--activation-bytes" && !converts_limit ? kWhy : nullptr;
}

// What a model determines, and what only a model reads.
const char* WhyUnreadByModel(const ScheduleOptions& options, const std::string& option) {
  if (options.priced_model.given()) {
    return OneOf(option, {"--cost", "--activation-bytes", "--message-bytes"})
               ? "the model determines it"
               : nullptr;
  }
  const std::vector<std::string> of_model = options.priced_model.Given();
  return Contains(of_model, option) ? "it describes how a model is trained, and there is no --model"
                                    : nullptr;
}

const char* WhyUnreadWithoutJitter(const ScheduleOptions& options, const std::string& option) {
  if (!OneOf(option, {"--jitter", "--seed", "--runs"})) return nullptr;
  // A configuration may serve several commands.
  if (!options.can_jitter && !options.given_in.contains(KeyOf(option))) {
    return "only 'penstock simulate' runs schedules with jitter";
  }
  const bool swept = std::any_of(options.sweep.begin(), options.sweep.end(),
                                 [](const SweepAxis& axis) { return axis.key == "jitter"; });
  return options.jitter || swept ? nullptr : "there is no --jitter";
}

const char* WhyUnread(const Source& source, const std::string& option) {
  const ScheduleOptions& options = source.options;
  if (const char* why = WhyUnreadByModel(options, option)) return why;
  if (const char* why = WhyUnreadWithoutJitter(options, option)) return why;
  // A configuration may serve several commands.
  if (!options.prices && !options.given_in.contains(KeyOf(option))) {
    if (const char* why = WhyUnreadWithoutPrices(options, source, option)) return why;
  }
  return source.algorithm == nullptr ? WhyUnreadByFile(source, option)
                                     : WhyUnreadByAlgorithm(*source.algorithm, options, option);
}

// Whether the algorithm itself refuses the option if it does not read it.
bool RefusedByAlgorithm(const std::string& option) {
  return OneOf(option, {"--chunks", "--group", "--slices", "--waves", "--steps", "--split",
                        "--objective", "--memory-limit"});
}

// Refuses what a candidate asks for by itself and does not read.
Status RefuseOwnUnread(const Source& source, const std::string& label) {
  for (const std::string& option : source.own) {
    if (source.algorithm != nullptr && RefusedByAlgorithm(option)) continue;
    const char* why = WhyUnread(source, option);
    if (why != nullptr) return HasNoEffect(fmt::format("{}: {}", Quote(label), KeyOf(option)), why);
  }
  return {};
}

Result<Source> SourceOf(const Candidate& candidate, const ScheduleOptions& options) {
  Source source;
  if (candidate.kind == Candidate::Kind::kFile) {
    source.is_dump = IsPrimusDump(candidate.name);
    source.is_trace = !source.is_dump && IsRecordedRun(candidate.name);
  } else {
    PENSTOCK_TRY(source.algorithm, FindAlgorithm(candidate.name));
  }
  source.options = options;
  const Status applied = ApplyCandidateOptions(candidate.options, source.options);
  if (!applied) {
    return InvalidArgument("{}: {}", Quote(candidate.label()), applied.error().line());
  }
  for (const auto& [key, value] : candidate.options) source.own.push_back(OptionOf(key));
  return source;
}

// Refuses what the command asks for and no source reads.
Status RefuseUnreadBy(const ScheduleOptions& options, const std::vector<Source>& sources) {
  const bool single = sources.size() == 1 && !options.compares;
  for (const std::string& option : GivenOptions(options)) {
    const char* why = "every schedule says it itself";
    bool read = false;
    for (const Source& source : sources) {
      if (Contains(source.own, option)) continue;
      read = read || (single && source.algorithm != nullptr && RefusedByAlgorithm(option));
      if (read) break;
      why = WhyUnread(source, option);
      read = why == nullptr;
      if (!single && !read) why = "none of the schedules reads it";
    }
    if (!read) return HasNoEffect(option, why);
  }
  return {};
}

bool AnyAction(std::span<const ChosenSchedule> schedules,
               const std::function<bool(const Action&)>& wanted) {
  for (const ChosenSchedule& chosen : schedules) {
    for (const Lane& lane : chosen.schedule.lanes) {
      if (std::any_of(lane.begin(), lane.end(), wanted)) return true;
    }
  }
  return false;
}

bool HasPass(const ScheduleOptions& options, std::string_view name) {
  return std::any_of(options.passes.passes.begin(), options.passes.passes.end(),
                     [&](const std::string& pass) {
                       return std::string_view(pass).substr(0, pass.find('=')) == name;
                     });
}

// What a key of --price prices, and the pass that adds it.
struct PricedOp {
  std::string_view key;
  Op op;
  std::string_view pass;
};
constexpr PricedOp kPricedOps[] = {{"recompute", Op::kRecompute, "recompute"},
                                   {"input", Op::kRecompute, "recompute"},
                                   {"step", Op::kStep, "optimizer"},
                                   {"unshard", Op::kUnshard, "sharding"},
                                   {"gathered", Op::kUnshard, "sharding"},
                                   {"reduce", Op::kReduceGrad, "sharding"},
                                   {"reduced", Op::kReduceGrad, "sharding"},
                                   {"offload", Op::kOffload, "offload"},
                                   {"reload", Op::kReload, "offload"},
                                   {"embed", Op::kEmbed, "vocabulary"},
                                   {"embed-grad", Op::kEmbed, "vocabulary"},
                                   {"s", Op::kEmbed, "vocabulary"},
                                   {"t", Op::kEmbed, "vocabulary"},
                                   {"exchange", Op::kEmbed, "vocabulary"},
                                   {"softmax", Op::kEmbed, "vocabulary"}};

}  // namespace

std::vector<std::string> GivenOptions(const ScheduleOptions& o) {
  const std::pair<const char*, bool> options[] = {
      {"--schedule", !o.candidates.empty()},
      {"--ranks", o.ranks.has_value()},
      {"--chunks", o.chunks.has_value()},
      {"--microbatches", o.microbatches.has_value()},
      {"--group", o.group.has_value()},
      {"--slices", o.slices.has_value()},
      {"--waves", o.waves.has_value()},
      {"--steps", o.steps.has_value()},
      {"--replicas", o.replicas.has_value()},
      {"--weights", o.weights.has_value()},
      {"--iteration", o.iteration.has_value()},
      {"--trace-rule", o.trace_rule.has_value()},
      {"--split", o.split},
      {"--objective", o.objective.has_value()},
      {"--cost", o.cost.has_value()},
      {"--comm", o.comm.has_value()},
      {"--overlap", o.overlap.has_value()},
      {"--transfers", o.transfers.has_value()},
      {"--offload-sharing", o.offload_sharing.has_value()},
      {"--launch", o.launch.has_value()},
      {"--slow-rank", !o.slow_ranks.empty()},
      {"--microbatch-lengths", o.microbatch_lengths.has_value()},
      {"--jitter", o.jitter.has_value()},
      {"--seed", o.seed.has_value()},
      {"--runs", o.runs.has_value()},
      {"--memory-limit", o.memory_limit.has_value()},
      {"--activation-bytes", o.activation_bytes.has_value()},
      {"--message-bytes", o.message_bytes.has_value()},
      {"--pass", !o.passes.passes.empty()},
      {"--price", !o.passes.prices.empty()},
      {"--sweep", !o.sweep.empty()}};
  std::vector<std::string> given;
  for (const auto& [option, is_given] : options) {
    if (is_given) given.emplace_back(option);
  }
  for (std::string& option : o.priced_model.Given()) given.push_back(std::move(option));
  return given;
}

void DropUnread(const Algorithm& algorithm, ScheduleOptions& options) {
  const Knobs& knobs = algorithm.knobs;
  const int chunks = options.chunks.value_or(knobs.min_chunks);
  if (chunks < knobs.min_chunks || chunks > knobs.max_chunks) options.chunks.reset();
  if (!knobs.group) options.group.reset();
  if (!knobs.slices) options.slices.reset();
  if (!knobs.waves) options.waves.reset();
  if (!knobs.steps) options.steps.reset();
  if (!knobs.split) options.split = false;
  if (!knobs.objective) options.objective.reset();
}

Status RefuseUnread(const ScheduleOptions& options) {
  PENSTOCK_TRY_STATUS(options.CheckCounts());
  std::vector<Source> sources;
  for (const Candidate& candidate : options.candidates) {
    PENSTOCK_TRY(const Source source, SourceOf(candidate, options));
    PENSTOCK_TRY_STATUS(RefuseOwnUnread(source, candidate.label()));
    sources.push_back(source);
  }
  return sources.empty() ? Status() : RefuseUnreadBy(options, sources);
}

Status RefuseOwnUnread(const Candidate& candidate, const ScheduleOptions& options) {
  PENSTOCK_TRY(const Source source, SourceOf(candidate, options));
  PENSTOCK_TRY_STATUS(source.options.CheckCounts());
  return RefuseOwnUnread(source, candidate.label());
}

Status RefuseUnreadByAll(const ScheduleOptions& options, std::span<const Algorithm> algorithms) {
  std::vector<Source> sources;
  for (const Algorithm& algorithm : algorithms) sources.push_back({&algorithm, false, options});
  return RefuseUnreadBy(options, sources);
}

Status RefuseUnreadPrices(const ScheduleOptions& options,
                          std::span<const ChosenSchedule> schedules) {
  const bool overlapped = !options.overlap || HasPass(options, "overlap") ||
                          AnyAction(schedules, [](const Action& a) { return a.is_pair(); });
  if (!overlapped) {
    return HasNoEffect("--overlap",
                       "no schedule overlaps a forward with a backward (--pass overlap)");
  }
  const bool offloads =
      !options.offload_sharing || HasPass(options, "offload") ||
      AnyAction(schedules, [](const Action& a) { return a.first.op == Op::kOffload; });
  if (!offloads) return HasNoEffect("--offload-sharing", "no schedule offloads (--pass offload)");
  for (const std::string& price : options.passes.prices) {
    const std::string key = price.substr(0, price.find('='));
    if (!options.shows_memory && !options.given_in.contains("price") &&
        OneOf(key, {"weights", "version", "gradients", "optimizer", "workspace"})) {
      return HasNoEffect("--price " + key, "only 'penstock simulate --memory' shows it");
    }
    for (const PricedOp& priced : kPricedOps) {
      if (key != priced.key || HasPass(options, priced.pass)) continue;
      if (AnyAction(schedules, [&](const Action& a) { return a.first.op == priced.op; })) continue;
      return HasNoEffect("--price " + key,
                         fmt::format("no schedule has what it prices (--pass {})", priced.pass));
    }
  }
  return {};
}

Status RefuseOthers(const ScheduleOptions& options, const std::vector<std::string>& read,
                    const std::string& why) {
  for (const std::string& option : GivenOptions(options)) {
    if (std::find(read.begin(), read.end(), option) == read.end()) return HasNoEffect(option, why);
  }
  return {};
}

}  // namespace penstock
