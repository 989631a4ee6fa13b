// Reads dumps: the events of each rank, then the placement that agrees with their times, then the
// lanes.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/files.h"
#include "base/index.h"
#include "base/text/quote.h"
#include "base/text/strict_json.h"
#include "interop/measured_costs.h"
#include "interop/megatron_order.h"
#include "interop/primus/dump.h"
#include "interop/primus/dump_costs.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kMostMicrobatches = 1 << 24;

struct Event {
  Op op = Op::kForward;
  int chunk = 0;
  int microbatch = 0;
  Span span;
};

struct RankDump {
  std::vector<Event> events;  // by start
  std::vector<double> memory;
};

// Sizes that all ranks share; 0 if config.json does not have them.
struct Shape {
  int ranks = 0, chunks = 0, microbatches = 0;
};

std::string RankPath(const std::string& folder, int rank) {
  return (fs::path(folder) / fmt::format("pp_rank_{}.json", rank)).string();
}

// A rank's file takes about 100 bytes per action, and ten times as much once parsed.
constexpr FileLimit kDumpFile = {std::size_t{256} << 20, "dump's file"};

Result<Json> LoadJson(const std::string& path) {
  PENSTOCK_TRY(const std::string text, ReadFile(path, kDumpFile));
  auto json = ParseStrictJson(text);
  if (!json) return tl::unexpected(In(path, json.error()));
  return json;
}

Result<int> Count(const Json& config, const char* key, const char* other) {
  const auto found = config.contains(key) ? config.find(key) : config.find(other);
  if (found == config.end()) return 0;
  if (!found->is_number_integer() || *found < 1 || *found > kMostMicrobatches) {
    return InvalidArgument("{} is not a number of at least 1", found.key());
  }
  return found->get<int>();
}

Result<Shape> LoadShape(const std::string& folder) {
  Shape shape;
  std::error_code error;
  while (fs::exists(RankPath(folder, shape.ranks), error)) ++shape.ranks;
  const std::string path = (fs::path(folder) / "config.json").string();
  if (!fs::exists(path, error)) return shape;
  PENSTOCK_TRY(const Json config, LoadJson(path));
  auto ranks = Count(config, "pp_size", "pp_size");
  auto chunks = Count(config, "vpp_size", "vp_size");
  auto microbatches = Count(config, "micro_batches", "num_mbs");
  for (const auto* count : {&ranks, &chunks, &microbatches}) {
    if (!*count) return tl::unexpected(In(path, count->error()));
  }
  if (*ranks != 0 && *ranks != shape.ranks) {
    return InvalidArgument("{}: pp_size {}, but there are {} files pp_rank_N.json", path, *ranks,
                           shape.ranks);
  }
  shape.chunks = *chunks;
  shape.microbatches = *microbatches;
  return shape;
}

Result<std::vector<double>> Numbers(const Json& iteration, const std::string& key) {
  std::vector<double> values;
  const auto found = iteration.find(key);
  if (found == iteration.end() || found->is_null()) return values;
  if (!found->is_array()) return InvalidArgument("{} is not a list", key);
  for (const Json& value : *found) {
    // Times and amounts of memory; a start before time zero is odd, yet readable.
    if (!value.is_number() || !(std::abs(value.get<double>()) <= kMostTime)) {
      return InvalidArgument("{} holds something that is not a number of at most {}", key,
                             kMostTime);
    }
    values.push_back(value.get<double>());
  }
  return values;
}

// Numbers from 0 to `most` - 1, one per event; empty if the dump has none.
Result<std::vector<int>> Indices(const Json& iteration, const std::string& key, std::size_t events,
                                 int most) {
  PENSTOCK_TRY(const std::vector<double> values, Numbers(iteration, key));
  if (!values.empty() && values.size() != events) {
    return InvalidArgument("{} has {} entries for {} events", key, values.size(), events);
  }
  std::vector<int> indices;
  for (const double value : values) {
    if (value < 0 || value >= most || value != std::floor(value)) {
      return InvalidArgument("{} holds {}, which is not from 0 to {}", key, value, most - 1);
    }
    indices.push_back(static_cast<int>(value));
  }
  return indices;
}

struct Kind {
  const char* name;
  Op op;
};

Status ReadKind(const Json& iteration, const Kind& kind, const Shape& shape,
                std::vector<Event>& events) {
  const std::string name = kind.name;
  PENSTOCK_TRY(const std::vector<double> start, Numbers(iteration, name + "_start"));
  PENSTOCK_TRY(const std::vector<double> end, Numbers(iteration, name + "_end"));
  if (start.size() != end.size()) {
    return InvalidArgument("{}_start has {} entries, {}_end {}", name, start.size(), name,
                           end.size());
  }
  const int most_chunks = shape.chunks > 0 ? shape.chunks : kMaxStages / shape.ranks;
  const int most = shape.microbatches > 0 ? shape.microbatches : kMostMicrobatches;
  PENSTOCK_TRY(const auto chunks, Indices(iteration, name + "_chunk", start.size(), most_chunks));
  PENSTOCK_TRY(const auto microbatches,
               Indices(iteration, name + "_minibatch", start.size(), most));
  std::vector<ChunkAndMicrobatch> order;
  if (microbatches.empty() && !start.empty()) {
    order = MegatronOrder(shape.ranks, std::max(shape.chunks, 1), shape.microbatches,
                          kind.op != Op::kForward);
    if (order.size() != start.size()) {
      return InvalidArgument("{} has {} events without microbatches; config.json makes it {}", name,
                             start.size(), order.size());
    }
  }
  for (std::size_t i = 0; i < start.size(); ++i) {
    const ChunkAndMicrobatch place =
        order.empty() ? ChunkAndMicrobatch{chunks.empty() ? 0 : chunks[i], microbatches[i]}
                      : order[i];
    if (end[i] < start[i]) return InvalidArgument("{}_end is before {}_start", name, name);
    events.push_back({kind.op, place.chunk, place.microbatch, {start[i], end[i]}});
  }
  return {};
}

// The key of the requested iteration, or the largest key.
Result<std::string> IterationKey(const Json& dump, std::optional<int> wanted) {
  int last = -1;
  for (const auto& entry : dump.items()) {
    const std::string& key = entry.key();
    int number = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
    if (error != std::errc() || end != key.data() + key.size() || number < 0) {
      return InvalidArgument("{} is not an iteration", Quote(key));
    }
    if (!wanted || *wanted == number) last = std::max(last, number);
  }
  if (last < 0 && wanted) return NotFound("there is no iteration {}", *wanted);
  if (last < 0) return InvalidArgument("there is no iteration");
  return fmt::format("{}", last);
}

Result<RankDump> ReadRank(const Json& dump, const std::string& key, const Shape& shape) {
  const auto found = dump.find(key);
  if (found == dump.end()) return InvalidArgument("there is no iteration {}", key);
  if (!found->is_object()) return InvalidArgument("iteration {} is not an object", key);
  RankDump rank;
  for (const Kind kind : {Kind{"fwd", Op::kForward}, Kind{"bwd", Op::kBackward},
                          Kind{"wgrad", Op::kBackwardWeight}}) {
    PENSTOCK_TRY_STATUS(ReadKind(*found, kind, shape, rank.events));
  }
  PENSTOCK_TRY(rank.memory, Numbers(*found, "activation_memory_usage"));
  std::stable_sort(rank.events.begin(), rank.events.end(), [](const Event& a, const Event& b) {
    return std::pair(a.span.start, a.span.end) < std::pair(b.span.start, b.span.end);
  });
  return rank;
}

Result<std::vector<RankDump>> ReadRanks(const std::string& folder, Shape& shape,
                                        std::optional<int> iteration) {
  std::vector<RankDump> ranks;
  std::string key;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const std::string path = RankPath(folder, rank);
    PENSTOCK_TRY(const Json dump, LoadJson(path));
    if (rank == 0) {
      auto chosen = IterationKey(dump, iteration);
      if (!chosen) return tl::unexpected(In(path, chosen.error()));
      key = *chosen;
    }
    auto read = ReadRank(dump, key, shape);
    if (!read) return tl::unexpected(In(path, read.error()));
    ranks.push_back(std::move(*read));
  }
  for (const RankDump& rank : ranks) {
    for (const Event& event : rank.events) {
      shape.chunks = std::max(shape.chunks, event.chunk + 1);
      shape.microbatches = std::max(shape.microbatches, event.microbatch + 1);
    }
  }
  if (shape.microbatches == 0) return InvalidArgument("{} holds no event", folder);
  return ranks;
}

// A backward whose W is a separate event is an I.
void SplitBackwards(const Shape& shape, std::vector<RankDump>& ranks) {
  for (RankDump& rank : ranks) {
    std::vector<bool> split(Index(shape.chunks) * Index(shape.microbatches));
    const auto at = [&](const Event& event) {
      return Index(event.chunk) * Index(shape.microbatches) + Index(event.microbatch);
    };
    for (const Event& event : rank.events) {
      if (event.op == Op::kBackwardWeight) split[at(event)] = true;
    }
    for (Event& event : rank.events) {
      if (event.op == Op::kBackward && split[at(event)]) event.op = Op::kBackwardInput;
    }
  }
}

bool IsPair(const Event& a, const Event& b) {
  return a.op == Op::kForward && (b.op == Op::kBackward || b.op == Op::kBackwardInput) &&
         a.span.start == b.span.start && a.span.end == b.span.end && a.span.end > a.span.start;
}

PrimusDump MakeLanes(const std::vector<RankDump>& ranks, const Shape& shape, Placement placement) {
  PrimusDump dump;
  dump.schedule.microbatches = shape.microbatches;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::vector<int>& stages = placement.stages_of(static_cast<int>(r));
    const std::vector<Event>& events = ranks[r].events;
    const auto action = [&](const Event& event) {
      return MakeAction(event.op, stages[event.chunk], event.microbatch);
    };
    Lane& lane = dump.schedule.lanes.emplace_back();
    std::vector<Span>& spans = dump.timeline.spans.emplace_back();
    for (std::size_t i = 0; i < events.size(); ++i) {
      spans.push_back(events[i].span);
      if (i + 1 < events.size() && IsPair(events[i], events[i + 1])) {
        lane.push_back(Overlap(action(events[i]), action(events[i + 1])));
        ++i;
      } else {
        lane.push_back(action(events[i]));
      }
    }
  }
  dump.schedule.placement = std::move(placement);
  return dump;
}

// Counts values that a consumer used before they were computed.
int CountBroken(const PrimusDump& dump) {
  const Placement& placement = dump.schedule.placement;
  const auto microbatches = Index(dump.schedule.microbatches);
  std::vector<double> made[2];  // forward, backward; by stage and microbatch
  for (auto& times : made) times.assign(Index(placement.stages()) * microbatches, 0);
  const auto visit = [&](auto each) {
    for (std::size_t r = 0; r < dump.schedule.lanes.size(); ++r) {
      for (std::size_t i = 0; i < dump.schedule.lanes[r].size(); ++i) {
        ForEachPart(dump.schedule.lanes[r][i], [&](const Part& part) {
          if (part.op != Op::kBackwardWeight) each(part, dump.timeline.spans[r][i]);
        });
      }
    }
  };
  visit([&](const Part& part, const Span& span) {
    made[part.op == Op::kForward ? 0 : 1][part.stage * microbatches + Index(part.microbatch)] =
        span.end;
  });
  int broken = 0;
  visit([&](const Part& part, const Span& span) {
    const bool forward = part.op == Op::kForward;
    const int from = forward ? placement.previous(part.stage) : placement.next(part.stage);
    if (from < 0) return;
    const double ready = made[forward ? 0 : 1][Index(from) * microbatches + Index(part.microbatch)];
    if (span.start < ready - 1e-9 * std::abs(ready)) ++broken;
  });
  return broken;
}

// The memory that each F adds to its rank, if the dump has the memory after every F, W and B.
void ReadActivations(const std::vector<RankDump>& ranks, const Placement& placement, Costs& costs) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankDump& rank = ranks[r];
    const auto changes = std::count_if(rank.events.begin(), rank.events.end(),
                                       [](const Event& e) { return e.op != Op::kBackwardInput; });
    if (Index(changes) != rank.memory.size()) continue;
    std::size_t next = 0;
    double held = 0;
    for (const Event& event : rank.events) {
      if (event.op == Op::kBackwardInput) continue;
      if (event.op == Op::kForward && rank.memory[next] >= held) {
        const int stage = placement.stages_of(static_cast<int>(r))[event.chunk];
        StageCosts& of = costs.stages[stage];
        of.activation = of.activation_after_i = rank.memory[next] - held;
      }
      held = rank.memory[next++];
    }
  }
}

// Replaces the medians with the costs in penstock.json.
Status ReadOwnCosts(const std::string& folder, PrimusDump& dump) {
  const std::string path = (fs::path(folder) / kDumpCostsFile).string();
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  PENSTOCK_TRY(const Json json, LoadJson(path));
  auto read = CostsFromJson(json, dump.schedule.stages());
  if (!read) return tl::unexpected(In(path, read.error()));
  // Another iteration, or a run of Primus that overwrote ours, has different costs.
  if (read->last_ends != LastEnds(dump.schedule, dump.timeline)) return {};
  dump.costs = std::move(read->costs);
  dump.memory_unit = std::move(read->memory_unit);
  dump.measured = false;
  return {};
}

}  // namespace

bool IsPrimusDump(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) && fs::exists(RankPath(path, 0), error);
}

Result<PrimusDump> LoadPrimusDump(const std::string& folder, std::optional<int> iteration) {
  PENSTOCK_TRY(Shape shape, LoadShape(folder));
  if (shape.ranks == 0) return NotFound("{} has no pp_rank_0.json", folder);
  PENSTOCK_TRY(std::vector<RankDump> ranks, ReadRanks(folder, shape, iteration));
  if (shape.chunks > kMaxStages / shape.ranks) {
    return InvalidArgument("{}: {} ranks x {} chunks: at most {} stages", folder, shape.ranks,
                           shape.chunks, kMaxStages);
  }
  const auto most = std::max_element(
      ranks.begin(), ranks.end(),
      [](const RankDump& a, const RankDump& b) { return a.events.size() < b.events.size(); });
  if (Index(shape.chunks) * Index(shape.microbatches) > most->events.size()) {
    return InvalidArgument("{}: no rank has the {} forwards of {} chunks x {} microbatches", folder,
                           Index(shape.chunks) * Index(shape.microbatches), shape.chunks,
                           shape.microbatches);
  }
  SplitBackwards(shape, ranks);
  PrimusDump dump = MakeLanes(ranks, shape, Placement::Looped(shape.ranks, shape.chunks));
  if (shape.chunks > 1 && shape.ranks > 1) {
    PrimusDump zigzag = MakeLanes(ranks, shape, Placement::Zigzag(shape.ranks, shape.chunks));
    if (CountBroken(zigzag) < CountBroken(dump)) dump = std::move(zigzag);
  }
  dump.schedule.algorithm = fs::path(folder).lexically_normal().filename().string();
  dump.costs = MedianCosts(dump.schedule, dump.timeline);
  ReadActivations(ranks, dump.schedule.placement, dump.costs);
  PENSTOCK_TRY_STATUS(ReadOwnCosts(folder, dump));
  return dump;
}

}  // namespace penstock
