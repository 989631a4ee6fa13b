#include "interop/primus/config.h"

#include <algorithm>
#include <cmath>

#include "base/text/quote.h"
#include "schedule/algorithms/primus_vee.h"
#include "schedule/validate/validate.h"

namespace penstock {
namespace {

// Largest number of forwards of one chunk over all ranks: each slot of a vee takes about 100 bytes.
constexpr std::int64_t kMostSlots = std::int64_t{1} << 24;

// Times of one chunk, as Primus divides them.
struct ChunkTimes {
  double forward = 0, backward_input = 0, backward_weight = 0;
  double backward = 0;  // may differ from the sum of its halves: each time is rounded down
  double activation = 0;
};

// The times of a configuration, per rank or per chunk.
struct Times {
  double forward = 0, backward_input = 0, backward_weight = 0;
  struct Chunk {
    std::optional<double> forward, backward_input, backward_weight, activation;
  };
  std::vector<std::vector<Chunk>> by_chunk;  // by rank; empty: the three above
};

enum class Generator { kCatalog, kVeeHalf, kVeeMin };

// One entry of `schedulers`.
struct Entry {
  std::string name;
  Generator generator = Generator::kCatalog;
  const Algorithm* algorithm = nullptr;
  ScheduleParams params;
};

double Rounded(double time, int chunks) { return std::floor(time / chunks); }

std::string LastComponent(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? path : path.substr(dot + 1);
}

// Maps Primus's names to the catalog's; the catalog itself has the other ones as aliases.
std::string OurName(const std::string& name) {
  if (name == "ScheduleZeroBubbleHeuristic" || name == "zerobubble_heuristic") return "zb-auto";
  if (name == "ScheduleZBVGreedy" || name == "zbv_greedy") return "v-half";
  return name;
}

// Reads a number and validates it with `check` (CheckTime, CheckMemory).
Result<std::optional<double>> Checked(const YamlMap& map, const std::string& key,
                                      Status (*check)(double)) {
  PENSTOCK_TRY(const std::optional<double> value, map.Number(key));
  const Status status = value ? check(*value) : Status();
  if (!status) return map.Refuse(key, "{}", status.error().line());
  return value;
}

Result<Times> ReadTimes(const YamlMap& config) {
  Times times;
  if (!config.Has("chunk_time_ms")) {
    const std::pair<const char*, double*> fields[] = {{"fwd_time", &times.forward},
                                                      {"bwd_time", &times.backward_input},
                                                      {"wgrad_time", &times.backward_weight}};
    for (const auto& [key, field] : fields) {
      PENSTOCK_TRY(const std::optional<double> value, Checked(config, key, CheckTime));
      if (!value) return InvalidArgument("{} is missing, and there is no chunk_time_ms", key);
      *field = *value;
    }
    return times;
  }
  for (const char* key : {"fwd_time", "bwd_time", "wgrad_time"}) {
    PENSTOCK_TRY_STATUS(Checked(config, key, CheckTime));
  }
  const YAML::Node ranks = config.Node("chunk_time_ms");
  if (!ranks.IsSequence()) return config.Refuse("chunk_time_ms", "a list of ranks is needed");
  for (const YAML::Node& rank : ranks) {
    if (!rank.IsSequence()) {
      return config.Refuse("chunk_time_ms", "each rank is a list of chunks");
    }
    times.by_chunk.emplace_back();
    for (const YAML::Node& chunk : rank) {
      PENSTOCK_TRY(const YamlMap map,
                   YamlMap::Of(chunk, "a chunk of chunk_time_ms", YamlMap::Null::kMissing));
      PENSTOCK_TRY_STATUS(map.RequireKnown({"fwd", "bwd", "wgrad", "activation"}));
      Times::Chunk& read = times.by_chunk.back().emplace_back();
      PENSTOCK_TRY(read.forward, Checked(map, "fwd", CheckTime));
      PENSTOCK_TRY(read.backward_input, Checked(map, "bwd", CheckTime));
      PENSTOCK_TRY(read.backward_weight, Checked(map, "wgrad", CheckTime));
      PENSTOCK_TRY(read.activation, Checked(map, "activation", CheckMemory));
    }
  }
  return times;
}

Result<int> RequireCount(const YamlMap& map, const std::string& key) {
  PENSTOCK_TRY(const std::optional<int> value, map.Int(key));
  if (!value) return InvalidArgument("line {}: {} is missing", map.Line(), key);
  if (*value < 1) return map.Refuse(key, "at least 1, not {}", *value);
  return *value;
}

// Reads the times that ScheduleZeroBubbleHeuristic plans with. The resulting schedule is still
// priced with the configuration's times.
Status ReadHeuristic(const YamlMap& map, ScheduleParams& params) {
  constexpr double kPrimusTime = 1000;
  constexpr double kPrimusComm = 1;
  const std::size_t ranks = params.ranks;
  const auto read = [&](const std::string& key) -> Result<std::vector<double>> {
    PENSTOCK_TRY(const auto given, map.Numbers(key));
    std::vector<double> values = given.value_or(std::vector<double>(1, kPrimusTime));
    if (values.size() == 1) values.resize(ranks, values.front());
    if (values.size() != ranks) {
      return map.Refuse(key, "{} values for {} ranks", values.size(), ranks);
    }
    for (const double value : values) {
      const Status status = CheckTime(value);
      if (!status) return map.Refuse(key, "{}", status.error().line());
    }
    return values;
  };
  PENSTOCK_TRY(const std::vector<double> forward, read("cost_f"));
  PENSTOCK_TRY(const std::vector<double> input, read("cost_b"));
  PENSTOCK_TRY(const std::vector<double> weight, read("cost_w"));
  PENSTOCK_TRY(const std::optional<double> comm, Checked(map, "cost_comm", CheckTime));
  params.comm = comm.value_or(kPrimusComm);
  Costs costs;
  costs.comm = params.comm;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    StageCosts& stage = costs.stages.emplace_back();
    stage.forward = stage.recompute = forward[rank];
    stage.backward_input = input[rank];
    stage.backward_weight = weight[rank];
  }
  params.costs = std::move(costs);
  PENSTOCK_TRY(const auto limits, map.Numbers("max_mem"));
  params.memory_limit = limits ? *std::min_element(limits->begin(), limits->end())
                               : static_cast<double>(params.microbatches);
  return {};
}

Status ReadVee(const YamlMap& map, Entry& entry) {
  PENSTOCK_TRY(const std::optional<std::string> memory, map.Text("memory_config"));
  if (memory && *memory != "half" && *memory != "min") {
    return map.Refuse("memory_config", "{} is neither half nor min", Quote(*memory));
  }
  const bool min = memory ? *memory == "min" : entry.algorithm->name == "v-min";
  entry.generator = min ? Generator::kVeeMin : Generator::kVeeHalf;
  PENSTOCK_TRY(entry.algorithm, FindAlgorithm(min ? "v-min" : "v-half"));
  return {};
}

Result<Entry> ReadEntry(const YamlMap& map) {
  Entry entry;
  PENSTOCK_TRY(const std::optional<std::string> name, map.Text("name"));
  PENSTOCK_TRY(const std::optional<std::string> path, map.Text("class"));
  if (!name) return InvalidArgument("line {}: name is missing", map.Line());
  entry.name = *name;
  PENSTOCK_TRY(entry.algorithm, FindAlgorithm(OurName(path ? LastComponent(*path) : *name)));
  PENSTOCK_TRY(entry.params.ranks, RequireCount(map, "pp_size"));
  PENSTOCK_TRY(entry.params.chunks, RequireCount(map, "vpp_size"));
  PENSTOCK_TRY(entry.params.microbatches, RequireCount(map, "micro_batches"));

  std::vector<std::string_view> known = {"name", "class", "pp_size", "vpp_size", "micro_batches"};
  const std::string_view algorithm = entry.algorithm->name;
  // Primus's simulator ignores both flags, so they change no figure here either.
  if (algorithm == "zbv-formatted") {
    known.insert(known.end(), {"combined_forward_backward", "offload"});
  } else if (algorithm == "v-half" || algorithm == "v-min") {
    known.insert(known.end(), {"memory_config", "offload"});
    PENSTOCK_TRY_STATUS(ReadVee(map, entry));
  } else if (algorithm == "zb-auto") {
    known.insert(known.end(), {"cost_f", "cost_b", "cost_w", "cost_comm", "max_mem"});
    PENSTOCK_TRY_STATUS(ReadHeuristic(map, entry.params));
  }
  PENSTOCK_TRY_STATUS(map.RequireKnown(known));
  for (const char* flag : {"combined_forward_backward", "offload"}) {
    PENSTOCK_TRY_STATUS(map.Bool(flag));
  }
  PENSTOCK_TRY(entry.params, CheckParams(*entry.algorithm, entry.params));
  return entry;
}

Result<Schedule> Order(const Entry& entry) {
  const ScheduleParams& params = entry.params;
  if (entry.generator != Generator::kCatalog) {
    if (params.microbatches > kMostSlots / params.ranks) {
      return InvalidArgument("{} ranks x {} micro_batches: at most {}", params.ranks,
                             params.microbatches, kMostSlots);
    }
    Schedule schedule = GeneratePrimusVee(
        entry.generator == Generator::kVeeMin ? PrimusVee::kMin : PrimusVee::kHalf, params.ranks,
        params.microbatches);
    schedule.algorithm = entry.algorithm->name;
    if (Validate(schedule, {.max_faults = 1}).empty()) return schedule;
  }
  return Generate(entry.algorithm->name, params);
}

Result<ChunkTimes> TimesOf(const Times& times, int rank, int chunk, int chunks) {
  if (times.by_chunk.empty()) {
    return ChunkTimes{Rounded(times.forward, chunks), Rounded(times.backward_input, chunks),
                      Rounded(times.backward_weight, chunks),
                      Rounded(times.backward_input + times.backward_weight, chunks), 1.0 / chunks};
  }
  const std::size_t r = rank;
  const std::size_t c = chunk;
  if (r >= times.by_chunk.size() || c >= times.by_chunk[r].size()) {
    return InvalidArgument("chunk_time_ms has no entry for rank {}, chunk {}", rank, chunk);
  }
  const Times::Chunk& given = times.by_chunk[r][c];
  const double input = given.backward_input.value_or(0);
  const ChunkTimes read = {given.forward.value_or(0), input, given.backward_weight.value_or(0),
                           input + given.backward_weight.value_or(input),
                           given.activation.value_or(0)};
  if (!(read.forward > 0 && read.backward_input > 0 && given.backward_weight.value_or(1) > 0)) {
    return InvalidArgument("chunk_time_ms: rank {}, chunk {} needs fwd, bwd and wgrad above 0",
                           rank, chunk);
  }
  return read;
}

Result<Costs> CostsAt(const Schedule& schedule, const Times& times) {
  bool split = false;
  for (const Lane& lane : schedule.lanes) {
    split = split || std::any_of(lane.begin(), lane.end(), [](const Action& action) {
              return action.first.op == Op::kBackwardWeight;
            });
  }
  Costs costs;
  costs.stages.resize(schedule.stages());
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const std::vector<int>& stages = schedule.placement.stages_of(rank);
    for (std::size_t chunk = 0; chunk < stages.size(); ++chunk) {
      PENSTOCK_TRY(const ChunkTimes of,
                   TimesOf(times, rank, static_cast<int>(chunk), static_cast<int>(stages.size())));
      if (split && of.backward_weight <= 0 && !times.by_chunk.empty()) {
        return InvalidArgument("chunk_time_ms: rank {}, chunk {} has no wgrad", rank, chunk);
      }
      StageCosts& stage = costs.stages[stages[chunk]];
      stage.forward = stage.recompute = of.forward;
      stage.backward_weight = of.backward_weight;
      stage.backward_input = split ? of.backward_input : of.backward - of.backward_weight;
      stage.activation = of.activation;
      stage.activation_after_i = of.activation;
    }
  }
  return costs;
}

Result<PrimusSchedule> ReadScheduler(const YAML::Node& node, const Times& times) {
  PENSTOCK_TRY(const YamlMap map, YamlMap::Of(node, "a scheduler", YamlMap::Null::kMissing));
  PENSTOCK_TRY(const Entry entry, ReadEntry(map));
  PENSTOCK_TRY(Schedule schedule, Order(entry));
  PENSTOCK_TRY(Costs costs, CostsAt(schedule, times));
  PrimusSchedule chosen;
  chosen.name = entry.name;
  chosen.params = entry.params;
  chosen.params.forward = times.forward;
  chosen.params.backward_input = times.backward_input;
  chosen.params.backward_weight = times.backward_weight;
  // Closed forms apply only if no time was rounded and the order is the catalog's.
  const int chunks = entry.params.chunks;
  const bool whole = std::fmod(times.forward, chunks) == 0 &&
                     std::fmod(times.backward_input, chunks) == 0 &&
                     std::fmod(times.backward_weight, chunks) == 0;
  if (times.by_chunk.empty() && whole && entry.generator == Generator::kCatalog &&
      !entry.params.costs) {
    chosen.algorithm = entry.algorithm;
  }
  chosen.schedule = std::move(schedule);
  chosen.costs = std::move(costs);
  return chosen;
}

}  // namespace

bool IsPrimusConfig(const YamlMap& config) { return config.Has("schedulers"); }

Result<PrimusConfig> ReadPrimusConfig(const YamlMap& config) {
  PENSTOCK_TRY_STATUS(config.RequireKnown({"fwd_time", "bwd_time", "wgrad_time", "chunk_time_ms",
                                           "print_simulation_result", "output_dir", "schedulers"}));
  PENSTOCK_TRY_STATUS(config.Bool("print_simulation_result"));
  PrimusConfig read;
  PENSTOCK_TRY(const std::optional<std::string> output_dir, config.Text("output_dir"));
  read.output_dir = output_dir.value_or("");
  PENSTOCK_TRY(const Times times, ReadTimes(config));
  const YAML::Node schedulers = config.Node("schedulers");
  if (!schedulers.IsSequence() || schedulers.size() == 0) {
    return config.Refuse("schedulers", "list at least one scheduler");
  }
  for (std::size_t i = 0; i < schedulers.size(); ++i) {
    auto chosen = ReadScheduler(schedulers[i], times);
    if (!chosen) {
      const YAML::Node name = schedulers[i].IsMap() ? schedulers[i]["name"] : YAML::Node();
      return tl::unexpected(In(fmt::format("scheduler {}", name.IsDefined() && name.IsScalar()
                                                               ? Quote(name.Scalar())
                                                               : fmt::format("{}", i + 1)),
                               chosen.error()));
    }
    read.schedules.push_back(std::move(*chosen));
  }
  return read;
}

}  // namespace penstock
