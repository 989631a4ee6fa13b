#include "simulate/memory/memory_by_kind.h"

#include <algorithm>
#include <span>

#include "base/index.h"
#include "schedule/compute_times.h"
#include "simulate/memory/holdings.h"
#include "simulate/memory/kept_versions.h"
#include "simulate/memory/memory_changes.h"

namespace penstock {
namespace {

struct KindChange {
  double time = 0;
  double amount = 0;
  MemoryKind kind = MemoryKind::kActivations;
  int action = MemoryPeak::kNoAction;
};

class MemoryOfRanks {
 public:
  explicit MemoryOfRanks(const MemoryInput& input)
      : input_(input), schedule_(input.schedule), changes_(schedule_.lanes.size()) {
    AddActions();
    AddVersions();
    if (input.per_byte > 0 && input.costs.message_bytes > 0) AddMessages();
  }

  RankMemory Of(int rank) {
    std::vector<KindChange>& changes = changes_[Index(rank)];
    std::ranges::stable_sort(changes, {}, &KindChange::time);
    RankMemory memory;
    std::array<double, kMemoryKinds> held = Constant(rank);
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
      memory.curves[kind] = {{0, held[kind]}};
    }
    memory.peak.amount = TotalOf(held);
    memory.peak.by_kind = held;
    int cause = MemoryPeak::kNoAction;
    for (auto next = changes.begin(); next != changes.end();) {
      const auto first = next;
      for (; next != changes.end() && next->time == first->time; ++next) {
        held[Index(next->kind)] += next->amount;
        AddPoint(memory.curves[Index(next->kind)], next->time, held[Index(next->kind)]);
      }
      cause = CauseIn({first, next}, cause);
      const double total = TotalOf(held);
      if (total > memory.peak.amount) memory.peak = {first->time, total, held, cause, {}};
    }
    memory.peak.in_flight = InFlight(rank, memory.peak.time);
    return memory;
  }

 private:
  static double TotalOf(const std::array<double, kMemoryKinds>& held) {
    double total = 0;
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
      if (static_cast<MemoryKind>(kind) != MemoryKind::kOffloaded) total += held[kind];
    }
    return total;
  }
  // Returns the action that allocates most in these changes, or else `before`.
  static int CauseIn(std::span<const KindChange> changes, int before) {
    const KindChange* cause = nullptr;
    for (const KindChange& change : changes) {
      if (change.action == MemoryPeak::kNoAction || change.amount <= 0) continue;
      if (change.kind == MemoryKind::kOffloaded) continue;
      if (cause == nullptr || change.amount > cause->amount) cause = &change;
    }
    return cause == nullptr ? before : cause->action;
  }
  static void AddPoint(MemoryCurve& curve, double time, double amount) {
    if (curve.back().time == time) {
      curve.back().amount = amount;
    } else if (curve.back().amount != amount) {
      curve.push_back({time, amount});
    }
  }

  std::array<double, kMemoryKinds> Constant(int rank) const {
    std::array<double, kMemoryKinds> held{};
    if (!input_.always.empty()) held = input_.always[Index(rank)];
    for (const int stage : schedule_.placement.stages_of(rank)) {
      const StageCosts& costs = input_.costs.stages[Index(stage)];
      held[Index(MemoryKind::kWeights)] += costs.weights;
      held[Index(MemoryKind::kGradients)] += costs.gradients;
      held[Index(MemoryKind::kOptimizer)] += costs.optimizer;
    }
    return held;
  }

  void Add(std::size_t rank, const KindChange& change) {
    if (change.amount != 0) changes_[rank].push_back(change);
  }

  void AddActions() {
    const Holdings holdings(schedule_, input_.costs);
    for (std::size_t r = 0; r < schedule_.lanes.size(); ++r) {
      for (std::size_t i = 0; i < schedule_.lanes[r].size(); ++i) {
        const Action& action = schedule_.lanes[r][i];
        const Span& span = input_.timeline.spans[r][i];
        ForEachMemoryChange(action, holdings, input_.costs,
                            [&](ActionMemory memory, ActionPoint point, double amount) {
                              const MemoryKind kind = memory == ActionMemory::kActivations
                                                          ? MemoryKind::kActivations
                                                          : MemoryKind::kGathered;
                              const double time =
                                  point == ActionPoint::kStart ? span.start : span.end;
                              Add(r, {time, amount, kind, static_cast<int>(i)});
                            });
        AddTemporary(r, i, span, holdings);
      }
    }
  }

  // Workspace while the action runs, and what it moves to and from the slower pool.
  void AddTemporary(std::size_t r, std::size_t i, const Span& span, const Holdings& holdings) {
    ForEachPart(schedule_.lanes[r][i], [&](const Part& part) {
      if (part.stage >= input_.costs.stages.size()) return;
      const int action = static_cast<int>(i);
      if (IsCompute(part.op) || part.op == Op::kRecompute) {
        const double workspace = input_.costs.Of(part).workspace;
        Add(r, {span.start, workspace, MemoryKind::kWorkspace, action});
        Add(r, {span.end, -workspace, MemoryKind::kWorkspace, action});
      }
      if (part.op == Op::kOffload) {
        Add(r, {span.start, holdings.Kept(part), MemoryKind::kOffloaded, action});
      }
      if (part.op == Op::kReload) {
        Add(r, {span.end, -holdings.Kept(part), MemoryKind::kOffloaded, action});
      }
    });
  }

  void AddVersions() {
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      const double size = input_.costs.stages[Index(stage)].version;
      if (size == 0) continue;
      const std::size_t rank = Index(schedule_.placement.rank_of(stage));
      for (const VersionChange& change : VersionChanges(schedule_, stage)) {
        const bool at_start = change.position == VersionChange::kFirst;
        const double time = at_start ? 0 : input_.timeline.spans[rank][Index(change.position)].end;
        Add(rank, {time, size * change.versions, MemoryKind::kVersions, change.position});
      }
    }
  }

  void AddMessages() {
    const ComputeTimes times(schedule_, input_.timeline);
    const std::vector<double> released = ReleaseTimes();
    for (const SentMessage& message : input_.messages) {
      const double size = SizeOf(message.kind, message.stage, message.microbatch);
      const double produced = times.Of(message.kind, message.stage, Index(message.microbatch)).end;
      const double read = ReadAt(times, message.kind, message.stage, message.microbatch);
      const double until = released.empty()
                               ? message.arrived
                               : released[Key({message.kind, message.stage, message.microbatch})];
      Hold(Index(message.from), std::min(produced, message.sent), until, size);
      Hold(Index(message.to), message.sent, read, size);
    }
    AddHandedOver(times);
  }
  // When the sender may reuse the memory of each message, by Key. Empty if that is when it arrives,
  // because no action waits for messages.
  std::vector<double> ReleaseTimes() const {
    if (!HasWaitSend(schedule_)) return {};
    std::vector<double> released(2 * Index(schedule_.stages()) * Index(schedule_.indices()));
    for (std::size_t r = 0; r < schedule_.lanes.size(); ++r) {
      for (std::size_t i = 0; i < schedule_.lanes[r].size(); ++i) {
        const Part& part = schedule_.lanes[r][i].first;
        if (IsWaitSend(part.op)) released[Key(MessageOf(part))] = input_.timeline.spans[r][i].end;
      }
    }
    return released;
  }
  std::size_t Key(const Value& value) const {
    return 2 * (Index(value.stage) * Index(schedule_.indices()) + Index(value.microbatch)) +
           Index(value.kind);
  }

  // Values of a stage whose neighbor is on the same rank.
  void AddHandedOver(const ComputeTimes& times) {
    const Placement& placement = schedule_.placement;
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      for (const ValueKind kind : {ValueKind::kActivation, ValueKind::kGradient}) {
        const int reader = ReaderOf(schedule_, kind, stage);
        if (reader < 0 || placement.rank_of(reader) != placement.rank_of(stage)) continue;
        for (int n = 0; n < schedule_.indices(); ++n) {
          Hold(Index(placement.rank_of(stage)), times.Of(kind, Index(stage), Index(n)).end,
               ReadAt(times, kind, stage, n), SizeOf(kind, stage, n));
        }
      }
    }
  }
  double ReadAt(const ComputeTimes& times, ValueKind kind, int stage, int index) const {
    return times.Of(kind, Index(ReaderOf(schedule_, kind, stage)), Index(index)).start;
  }
  // A gradient is as large as the output that it belongs to.
  double SizeOf(ValueKind kind, int stage, int index) const {
    const int output = kind == ValueKind::kActivation ? stage : schedule_.placement.previous(stage);
    const Part part{Op::kForward, static_cast<std::uint16_t>(stage), index};
    return input_.costs.MessageSize(output, part) * input_.per_byte;
  }
  void Hold(std::size_t rank, double from, double until, double size) {
    if (from >= until) return;
    Add(rank, {from, size, MemoryKind::kMessages});
    Add(rank, {until, -size, MemoryKind::kMessages});
  }

  // The microbatch indices whose activations are alive at `time`, by stage of the rank.
  std::vector<int> InFlight(int rank, double time) const {
    const std::vector<int> stages = schedule_.placement.stages_of(rank);
    std::vector<int> in_flight(stages.size());
    const Lane& lane = schedule_.lanes[Index(rank)];
    for (std::size_t i = 0; i < lane.size(); ++i) {
      const Span& span = input_.timeline.spans[Index(rank)][i];
      ForEachPart(lane[i], [&](const Part& part) {
        const auto stage = std::ranges::find(stages, static_cast<int>(part.stage));
        if (stage == stages.end()) return;
        int& count = in_flight[Index(stage - stages.begin())];
        if (part.op == Op::kForward && span.start <= time) ++count;
        const bool ends = EndsMicrobatch(schedule_.backward_of(part.stage), part.op);
        if (ends && span.end <= time) --count;
      });
    }
    return in_flight;
  }

  const MemoryInput& input_;
  const Schedule& schedule_;
  std::vector<std::vector<KindChange>> changes_;  // by rank
};

}  // namespace

std::string_view NameOf(MemoryKind kind) {
  constexpr std::array<std::string_view, kMemoryKinds> kNames = {
      "weights",  "versions",  "gradients", "optimizer", "activations",   "messages",
      "gathered", "workspace", "offloaded", "others",    "fragmentation", "context"};
  return kNames[Index(kind)];
}

bool Holds(std::span<const RankMemory> ranks, MemoryKind kind) {
  return std::ranges::any_of(
      ranks, [&](const RankMemory& rank) { return PeakOf(rank.curves[Index(kind)]) > 0; });
}

std::vector<RankMemory> MemoryByKind(const MemoryInput& input) {
  MemoryOfRanks ranks(input);
  std::vector<RankMemory> memory;
  for (int rank = 0; rank < input.schedule.ranks(); ++rank) memory.push_back(ranks.Of(rank));
  return memory;
}

}  // namespace penstock
