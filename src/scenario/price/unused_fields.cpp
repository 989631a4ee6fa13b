#include "scenario/price/unused_fields.h"

#include <algorithm>
#include <functional>

#include "base/text/quote.h"
#include "interop/primus/dump.h"
#include "interop/traces/recorded_run.h"
#include "scenario/fields.h"
#include "scenario/own_fields.h"

namespace penstock {
namespace {

Status HasNoEffect(std::string_view field, std::string_view why) {
  return InvalidParameter(field, "has no effect here: {}; leave it out", why);
}

// Where a candidate comes from: an algorithm, or a file.
struct Source {
  ReadBy kind = kAlgorithm;
  const Algorithm* algorithm = nullptr;
  Scenario scenario;                  // with its own fields in place of the scenario's
  std::vector<std::string> own = {};  // the names of these
};

// Why a source of another kind does not read a field.
const char* WhyNotReadBy(const ScenarioField& field) {
  switch (field.read_by) {
    case kAlgorithm:
      return "the schedule is in a file, no algorithm makes it";
    case kCsv:
      return "it applies to CSV files only";
    case kTrace:
      return "it applies to recorded traces only";
    case kDump | kTrace:
      return "it chooses a step of a trace or of Primus's dumps";
    default:
      return "a trace or dump holds one batch of whole microbatches and one chain of stages";
  }
}

bool IsReadInOrdering(const ScenarioField& field, const Source& source) {
  if ((field.ordered_by & kEverybody) != 0) return true;
  if ((field.ordered_by & kPasses) != 0 && !source.scenario.pass.empty()) return true;
  if (source.algorithm == nullptr) return false;
  // A search reads a size only to convert a limit.
  if (field.name == "activation_bytes") return source.scenario.memory_limit.has_value();
  return (field.ordered_by & kSearches) != 0;
}

bool VariesJitter(const Scenario& scenario) {
  return scenario.jitter.has_value() ||
         std::ranges::any_of(scenario.sweep,
                             [](const SweepAxis& axis) { return axis.key == "jitter"; });
}

const char* WhyUnusedInRuns(const ScenarioField& field, const Scenario& scenario,
                            const Purpose& purpose) {
  if (field.group != FieldGroup::kRuns) return nullptr;
  // A configuration may serve several commands.
  if (!purpose.has_runs && !scenario.places.contains(field.name)) {
    return "only 'penstock simulate' runs schedules several times";
  }
  return field.name == "repeat" || VariesJitter(scenario) ? nullptr : "there is no `jitter`";
}

// Why a source does not read a field; null if it does.
const char* WhyUnused(const ScenarioField& field, const Source& source, const Purpose& purpose) {
  const Scenario& scenario = source.scenario;
  if (field.with_model == WithModel::kNotWith && scenario.prices_model()) {
    return "the model determines it";
  }
  if (field.with_model == WithModel::kOnlyWith && !scenario.prices_model()) {
    return "it describes how a model is trained, and there is no `model`";
  }
  if (const char* why = WhyUnusedInRuns(field, scenario, purpose)) return why;
  // A configuration may serve several commands.
  if (!purpose.prices && !scenario.places.contains(field.name) &&
      !IsReadInOrdering(field, source)) {
    return "this command orders actions and prices none";
  }
  if ((field.read_by & source.kind) == 0) return WhyNotReadBy(field);
  const bool supported = source.algorithm == nullptr || field.supported == nullptr ||
                         field.supported(*source.algorithm, scenario);
  return supported ? nullptr : "the algorithm does not read it";
}

// Whether the algorithm itself refuses the field if it does not read it.
bool IsRefusedByAlgorithm(const ScenarioField& field) {
  return field.supported != nullptr || field.name == "memory_limit";
}

// Refuses what a candidate asks for by itself and does not read.
Status RefuseOwnUnused(const Source& source, const std::string& label, const Purpose& purpose) {
  for (const std::string& name : source.own) {
    const ScenarioField& field = *FindField(name);
    if (source.algorithm != nullptr && IsRefusedByAlgorithm(field)) continue;
    const char* why = WhyUnused(field, source, purpose);
    if (why == nullptr) continue;
    return InvalidArgument("{}: {} has no effect here: {}; leave it out", Quote(label), name, why);
  }
  return {};
}

Result<Source> SourceOf(const Candidate& candidate, const Scenario& scenario) {
  Source source;
  if (candidate.kind == Candidate::Kind::kAlgorithm) {
    PENSTOCK_TRY(source.algorithm, FindAlgorithm(candidate.name));
  } else {
    source.kind = IsPrimusDump(candidate.name)    ? kDump
                  : IsRecordedRun(candidate.name) ? kTrace
                                                  : kCsv;
  }
  source.scenario = scenario;
  const Status applied = ApplyOwnFields(candidate.options, source.scenario);
  if (!applied) return InvalidArgument("{}: {}", Quote(candidate.label()), applied.error().line());
  for (const auto& [name, value] : candidate.options) source.own.push_back(name);
  return source;
}

// Refuses what the scenario asks for and no source reads.
Status RefuseUnusedBy(const Scenario& scenario, const Purpose& purpose,
                      const std::vector<Source>& sources) {
  const bool single = sources.size() == 1 && !scenario.compares;
  for (const ScenarioField& field : ScenarioFields()) {
    if (!IsGiven(field, scenario)) continue;
    const char* why = nullptr;
    bool read = false;
    for (const Source& source : sources) {
      if (std::ranges::find(source.own, field.name) != source.own.end()) continue;
      read = read || (single && source.algorithm != nullptr && IsRefusedByAlgorithm(field));
      if (read) break;
      why = WhyUnused(field, source, purpose);
      read = why == nullptr;
      if (!single && !read) why = "none of the schedules reads it";
    }
    if (read) continue;
    if (why == nullptr) {
      return HasNoEffect(field.name, fmt::format("every schedule sets {} itself", field.name));
    }
    return HasNoEffect(field.name, why);
  }
  return {};
}

bool AnyAction(std::span<const PricedSchedule> schedules,
               const std::function<bool(const Action&)>& wanted) {
  for (const PricedSchedule& chosen : schedules) {
    for (const Lane& lane : chosen.schedule.lanes) {
      if (std::any_of(lane.begin(), lane.end(), wanted)) return true;
    }
  }
  return false;
}

bool HasPass(const Scenario& scenario, std::string_view name) {
  return std::ranges::any_of(scenario.pass, [&](const std::string& pass) {
    return std::string_view(pass).substr(0, pass.find('=')) == name;
  });
}

// A price with the op that it is for, and the pass that adds this op.
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

bool IsHeldMemory(std::string_view price) {
  for (const char* held : {"weights", "version", "gradients", "optimizer", "workspace"}) {
    if (price == held) return true;
  }
  return false;
}

// Refuses a price of an op that no schedule has.
Status RefuseUnusedPrice(const Scenario& scenario, std::string_view key,
                         std::span<const PricedSchedule> schedules) {
  for (const PricedOp& priced : kPricedOps) {
    if (key != priced.key || HasPass(scenario, priced.pass)) continue;
    if (AnyAction(schedules, [&](const Action& a) { return a.first.op == priced.op; })) continue;
    return HasNoEffect(fmt::format("price {}", key),
                       fmt::format("no schedule has what it prices (`pass` {})", priced.pass));
  }
  return {};
}

}  // namespace

void DropUnsupported(const Algorithm& algorithm, Scenario& scenario) {
  for (const ScenarioField& field : ScenarioFields()) {
    if (field.supported == nullptr || !IsGiven(field, scenario)) continue;
    if (!field.supported(algorithm, scenario)) Reset(field, scenario);
  }
}

Status RefuseUnused(const Scenario& scenario, const Purpose& purpose) {
  PENSTOCK_TRY_STATUS(CheckRanges(scenario));
  std::vector<Source> sources;
  for (const Candidate& candidate : scenario.schedules) {
    PENSTOCK_TRY(const Source source, SourceOf(candidate, scenario));
    PENSTOCK_TRY_STATUS(RefuseOwnUnused(source, candidate.label(), purpose));
    sources.push_back(source);
  }
  return sources.empty() ? Status() : RefuseUnusedBy(scenario, purpose, sources);
}

Status RefuseOwnUnused(const Candidate& candidate, const Scenario& scenario,
                       const Purpose& purpose) {
  PENSTOCK_TRY(const Source source, SourceOf(candidate, scenario));
  PENSTOCK_TRY_STATUS(CheckRanges(source.scenario));
  return RefuseOwnUnused(source, candidate.label(), purpose);
}

Status RefuseUnusedByAll(const Scenario& scenario, const Purpose& purpose,
                         std::span<const Algorithm> algorithms) {
  std::vector<Source> sources;
  for (const Algorithm& algorithm : algorithms) {
    sources.push_back({kAlgorithm, &algorithm, scenario});
  }
  return RefuseUnusedBy(scenario, purpose, sources);
}

Status RefuseUnusedPrices(const Scenario& scenario, const Purpose& purpose,
                          std::span<const PricedSchedule> schedules) {
  const bool overlapped = !scenario.overlap || HasPass(scenario, "overlap") ||
                          AnyAction(schedules, [](const Action& a) { return a.is_pair(); });
  if (!overlapped) {
    return HasNoEffect("overlap",
                       "no schedule overlaps a forward with a backward (`pass` overlap)");
  }
  const bool offloads =
      !scenario.offload_sharing || HasPass(scenario, "offload") ||
      AnyAction(schedules, [](const Action& a) { return a.first.op == Op::kOffload; });
  if (!offloads) return HasNoEffect("offload_sharing", "no schedule offloads (`pass` offload)");
  for (const std::string& price : scenario.price) {
    const std::string key = price.substr(0, price.find('='));
    if (!purpose.shows_memory && !scenario.places.contains("price") && IsHeldMemory(key)) {
      return HasNoEffect("price " + key, "only `memory` of 'penstock simulate' shows it");
    }
    PENSTOCK_TRY_STATUS(RefuseUnusedPrice(scenario, key, schedules));
  }
  return {};
}

Status RefuseOthers(const Scenario& scenario, const std::vector<std::string_view>& read,
                    const std::string& why) {
  if (!scenario.schedules.empty()) return HasNoEffect("schedule", why);
  if (!scenario.sweep.empty()) return HasNoEffect("sweep", why);
  for (const std::string_view field : GivenFields(scenario)) {
    if (std::ranges::find(read, field) == read.end()) return HasNoEffect(field, why);
  }
  return {};
}

}  // namespace penstock
