// What the memory of each rank holds over time, by kind, and what causes its peak.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/sent_message.h"
#include "schedule/timeline.h"
#include "simulate/memory/memory_over_time.h"

namespace penstock {

enum class MemoryKind {
  kWeights,      // of the rank's stages, with masters
  kVersions,     // older weights, which microbatches in flight read (WeightPolicy)
  kGradients,    // sums over microbatches
  kOptimizer,    // state
  kActivations,  // from F to B or W
  kMessages,     // values between two stages: sent, received, or waiting for the next stage
  kGathered,     // shards of other replicas, from UNSHARD to RESHARD
  kWorkspace,    // temporary, while an action computes
  kOffloaded,    // in the slower pool, so in no total
  kOthers,       // buffers and masks of the framework
  kFragments,    // that the allocator holds unused
  kContext,      // of the device's driver and of libraries of collectives
};
inline constexpr std::size_t kMemoryKinds = 12;

// "weights", "versions", ...
std::string_view NameOf(MemoryKind kind);

// The most that a rank holds, when it first does, and why.
struct MemoryPeak {
  static constexpr int kNoAction = -1;

  double time = 0;
  double amount = 0;                           // of all kinds except kOffloaded
  std::array<double, kMemoryKinds> by_kind{};  // at that time
  int action = kNoAction;                      // position of the last action that allocated
  std::vector<int> in_flight;                  // by stage of the rank: microbatch indices
};

struct RankMemory {
  std::array<MemoryCurve, kMemoryKinds> curves;  // each starts at time 0
  MemoryPeak peak;
};

// Whether some rank ever holds this kind.
bool Holds(std::span<const RankMemory> ranks, MemoryKind kind);

// What the memory is derived from. Everything belongs to one schedule.
struct MemoryInput {
  const Schedule& schedule;
  const Timeline& timeline;
  const std::vector<SentMessage>& messages;
  const Costs& costs;
  // Units of memory per byte of costs.message_bytes. Messages are not counted if it is 0.
  double per_byte = 1;
  // Bytes that each rank always holds (context, buffers), by kind; empty: none.
  std::vector<std::array<double, kMemoryKinds>> always = {};
};

// Returns the memory by rank. Activations and gathered shards follow MemoryOverTime. A message is
// held by its sender from the end of the action that computes it until it arrives, and by its
// receiver from when it leaves until the action that reads it starts. In a schedule with WAIT_SEND,
// the sender holds a message until its WAIT_SEND ends. Older versions are counted as
// in a run's steady state. At the same time, memory is freed before it is allocated.
std::vector<RankMemory> MemoryByKind(const MemoryInput& input);

}  // namespace penstock
