// Compares our schedules with the figures of public peers (goldens.json, README.md), each at its
// sizes, costs, latency and memory limit.
//
// For 1f1b, interleaved, gpipe and looped-bfs, makespan and memory must be equal. The others are
// compared with the peers of the same algorithm and parameters: ours must be at or below at least
// one of them in both figures, and no peer may be below ours in both. With a memory limit, ours
// must stay within it and be no slower.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "schedule/catalog.h"
#include "schedule/validate/validate.h"
#include "simulate/simulate.h"

namespace penstock {
namespace {

struct Entry {
  std::string source, algorithm;  // the peer's names
  std::string ours = {};
  ScheduleParams params = {};
  OverlapRule overlap = {};
  double act_after_i = 1;
  std::optional<double> limit = {};  // in stage-chunks
  double makespan = 0, peak_memory = 0;
  bool exact = false;

  // Entries with the same key are compared with the same schedule of ours.
  std::string Key() const {
    return fmt::format("{} p={} v={} m={} cost={},{},{} comm={} overlap={} limit={} after={}", ours,
                       params.ranks, params.chunks, params.microbatches, params.forward,
                       params.backward_input, params.backward_weight, params.comm,
                       static_cast<int>(overlap.kind), limit.value_or(-1), act_after_i) +
           fmt::format(" group={} slices={}", params.group, params.slices);
  }
};

Entry ReadEntry(const nlohmann::json& json) {
  Entry entry = {.source = json["source"], .algorithm = json["algorithm"]};
  if (const auto ours = FindAlgorithm(entry.algorithm)) entry.ours = (*ours)->name;
  const nlohmann::json& options = json["options"];
  ScheduleParams& params = entry.params;
  params.ranks = json["p"];
  params.chunks = json["v"];
  params.microbatches = json["m"];
  params.slices = options.value("seq_splits", 1);
  params.group = options.value("group_size", 0);
  // The peer's costs are per stage-chunk (or slice of one), ours per rank's share.
  const double shares = static_cast<double>(params.chunks) * params.slices;
  params.forward = json["f"].get<double>() * shares;
  params.backward_input = json["i"].get<double>() * shares;
  params.backward_weight = json["w"].get<double>() * shares;
  params.comm = json["comm"];
  if (json.value("overlap", "max") == "sum") entry.overlap.kind = OverlapRule::Kind::kSum;
  entry.act_after_i = json.value("act_after_i", 1.0);
  if (options.contains("max_mem") && !options["max_mem"].is_null()) {
    entry.limit = options["max_mem"].get<double>();
  }
  entry.makespan = json["makespan"];
  entry.peak_memory = json.value("peak_memory_split", json["peak_memory"].get<double>());
  entry.exact = entry.ours == "1f1b" || entry.ours == "gpipe" || entry.ours == "looped-bfs" ||
                (entry.ours == "interleaved" && params.group == 0);
  return entry;
}

std::vector<Entry> ReadGoldens() {
  std::ifstream file(PENSTOCK_GOLDENS);
  std::vector<Entry> entries;
  for (const nlohmann::json& json : nlohmann::json::parse(file)) entries.push_back(ReadEntry(json));
  return entries;
}

// Whether the algorithm searches with the entry's own costs and limit.
bool IsSearched(const std::string& name) { return name == "zb-auto" || name == "v-auto"; }

struct Reached {
  double makespan = 0;
  double peak_memory = 0;  // in stage-chunks, or slices of them
};

// Returns costs in which the memory of a stage-chunk is 1, as in the file.
Costs ChunkCosts(const Entry& entry, const Placement& placement) {
  Costs costs =
      Costs::Uniform(placement, entry.params.slices, entry.params.forward,
                     entry.params.backward_input, entry.params.backward_weight, entry.params.comm);
  for (StageCosts& stage : costs.stages) {
    stage.activation = 1;
    stage.activation_after_i = entry.act_after_i;
  }
  costs.overlap = entry.overlap;
  return costs;
}

Placement PlacementOf(const Entry& entry) {
  return entry.ours == "v-auto" ? Placement::Vee(entry.params.ranks)
                                : Placement::Linear(entry.params.ranks);
}

Result<Reached> Reach(const Entry& entry) {
  ScheduleParams params = entry.params;
  if (IsSearched(entry.ours)) {
    params.memory_limit = entry.limit;
    // Only the searches know the limit and the memory model.
    params.costs = ChunkCosts(entry, PlacementOf(entry));
  }
  PENSTOCK_TRY(const Schedule schedule, Generate(entry.ours, params));
  const std::vector<Fault> faults = Validate(schedule);
  if (!faults.empty()) return InvalidArgument("invalid: {}", faults.front().reason);
  PENSTOCK_TRY(const SimulationResult result,
               Simulate(schedule, ChunkCosts(entry, schedule.placement)));
  return Reached{result.makespan, result.peak_memory};
}

bool AtMost(double a, double b) { return a <= b * (1 + 1e-9); }
bool Below(double a, double b) { return a < b * (1 - 1e-9); }

// The entries, grouped by key.
using Bars = std::map<std::string, std::vector<Entry>>;

// Groups below half the ranks can deadlock and are refused.
bool IsRefused(const Entry& entry) {
  return entry.params.group != 0 && 2 * entry.params.group < entry.params.ranks;
}

Bars BarsOf(const std::set<std::string>& algorithms) {
  Bars bars;
  for (Entry& entry : ReadGoldens()) {
    if (!algorithms.contains(entry.ours) || IsRefused(entry)) continue;
    bars[entry.Key()].push_back(std::move(entry));
  }
  return bars;
}

// Whether our figures are at or below the peer's.
bool Meets(const Reached& ours, const Entry& peer, const std::string& key) {
  const std::string both =
      fmt::format("{}: ours {} at {}, {}'s {} at {}", key, ours.makespan, ours.peak_memory,
                  peer.source, peer.makespan, peer.peak_memory);
  if (peer.exact) {
    EXPECT_DOUBLE_EQ(ours.makespan, peer.makespan) << both;
    EXPECT_DOUBLE_EQ(ours.peak_memory, peer.peak_memory) << both;
  }
  if (peer.limit) {
    EXPECT_TRUE(AtMost(ours.makespan, peer.makespan)) << both;
  }
  EXPECT_FALSE(Below(peer.makespan, ours.makespan) && Below(peer.peak_memory, ours.peak_memory))
      << both;
  return AtMost(ours.makespan, peer.makespan) &&
         (peer.limit || AtMost(ours.peak_memory, peer.peak_memory));
}

void ExpectMet(const std::set<std::string>& algorithms) {
  const Bars bars = BarsOf(algorithms);
  EXPECT_GE(bars.size(), 9U);
  for (const auto& [key, peers] : bars) {
    const Entry& first = peers.front();
    const auto ours = Reach(first);
    ASSERT_TRUE(ours) << key << ": " << ours.error().line();
    if (first.limit && IsSearched(first.ours)) {
      EXPECT_TRUE(AtMost(ours->peak_memory, *first.limit)) << key;
    }
    bool meets_one = false;
    for (const Entry& peer : peers) meets_one |= Meets(*ours, peer, key);
    EXPECT_TRUE(meets_one) << key << ": ours " << ours->makespan << " at " << ours->peak_memory
                           << ", " << peers.front().source << "'s " << peers.front().makespan
                           << " at " << peers.front().peak_memory;
  }
}

const std::set<std::string>& ByRule() {
  static const std::set<std::string> names = {
      "1f1b",     "gpipe",         "interleaved", "interleaved-zb", "looped-bfs",
      "dualpipe", "zbv-formatted", "seq1f1b",     "zb-h1",          "dualpipev",
  };
  return names;
}

// Several tests, because ctest runs each in a process and the searches take long.
TEST(Golden, ByRule) { ExpectMet(ByRule()); }
TEST(Golden, Vees) { ExpectMet({"v-half", "v-min", "v-1f1b", "zbv"}); }
TEST(Golden, ZbAuto) { ExpectMet({"zb-auto"}); }
TEST(Golden, VAuto) { ExpectMet({"v-auto"}); }

TEST(Golden, EveryEntryIsJudged) {
  std::set<std::string> judged = ByRule();
  judged.insert({"v-half", "v-min", "v-1f1b", "zbv", "zb-auto", "v-auto"});
  std::size_t entries = 0, refused = 0;
  for (const Entry& entry : ReadGoldens()) {
    entries += judged.contains(entry.ours) ? 1 : 0;
    if (!IsRefused(entry)) continue;
    EXPECT_FALSE(Generate(entry.ours, entry.params)) << entry.Key();
    ++refused;
  }
  EXPECT_EQ(entries, 1102U);
  EXPECT_EQ(refused, 12U);
}

}  // namespace
}  // namespace penstock
