#include "simulate/simulate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "base/index.h"
#include "base/system/prefetch.h"
#include "schedule/deps.h"
#include "schedule/reserve.h"
#include "schedule/text/text.h"
#include "schedule/vocabulary.h"
#include "simulate/arrivals.h"
#include "simulate/check_input.h"
#include "simulate/engine_state.h"
#include "simulate/side_work.h"
#include "simulate/summary.h"

namespace penstock {
namespace {

// The key for a STEP that waits for gradients of other ranks' stages.
constexpr Arrivals::Key kOtherGradients = kNothingMissing - 1;
// The number of actions of a lane that are fetched ahead. A hundred or more lanes that alternate
// are too many streams for hardware prefetchers: 42 to 72 million actions/s at 256 ranks.
constexpr std::size_t kActionsAhead = 8;
// Runs every lane as far as it goes, and resumes a lane when the value that it waits for is
// available. Each action is visited once, plus once for each time that its rank had to wait:
// linear.
//
// The placement determines the one other rank, if any, that needs a value. So one slot per value is
// all the bookkeeping: there is no queue of events and no map of waiters.
class Engine {
 public:
  Engine(const Schedule& schedule, const Costs& costs, Timeline* timeline)
      : schedule_(schedule),
        costs_(costs),
        timeline_(timeline),
        shape_(ChainShape::Of(schedule)),
        overlap_(costs.overlap),
        comm_(costs.comm),
        early_gradients_(costs.early_gradients),
        side_ops_(SideWork::PricedOps(schedule, costs)),
        indices_(schedule.indices()),
        ends_(VocabularyEnds::Of(schedule)),
        shared_stage_(Index(schedule.stages())),
        arrivals_(shared_stage_ + (schedule.vocabulary ? 1 : 0), indices_) {
    stages_.resize(schedule.stages());
    for (int stage = 0; stage < schedule.stages(); ++stage) FillStage(stage);
    if (!costs.by_slice.empty()) FillSlices();
    prices_vary_ = !costs.by_slice.empty();
    for (const StageCosts& stage : costs.stages) {
      prices_vary_ = prices_vary_ || stage.Freed(Op::kBackwardInput) < 0;
    }
    // The list has each rank at most once, so it never grows while running.
    runnable_.reserve(schedule.lanes.size());
  }

  Status Run() {
    // Few schedules have actions other than compute, and those have them early. So instead of
    // searching for them first, the first one that is reached restarts the run.
    LaneEnd end = RunAll();
    while (end == LaneEnd::kSends || end == LaneEnd::kSideWork) {
      explicit_ = explicit_ || end == LaneEnd::kSends;
      if (end == LaneEnd::kSideWork || side_) side_.emplace(schedule_, costs_);
      arrivals_.Clear();
      end = RunAll();
    }
    if (end == LaneEnd::kMalformed) {
      const std::size_t position = ranks_[current_].position;
      return InvalidArgument("rank {}, position {}: {} does not belong to this rank", current_,
                             position, ToText(schedule_.lanes[current_][position]));
    }
    return CheckDone();
  }

  SimulationResult Collect() {
    SimulationResult result;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const LaneState& state = ranks_[r];
      result.actions += state.position - state.others;
      const double peak = side_ ? side_->Peak(r) : state.peak_memory;
      // Only actions that occupy the rank advance its clock.
      result.ranks.push_back({state.busy, std::max(state.first_start, 0.0), state.clock, peak});
    }
    FillTotals(schedule_, result);
    return result;
  }

 private:
  void FillStage(int stage) {
    const Placement& placement = schedule_.placement;
    StageEntry& entry = stages_[stage];
    entry.rank = placement.rank_of(stage);
    const int next = placement.next(stage);
    const int previous = placement.previous(stage);
    if (next >= 0 && placement.rank_of(next) != entry.rank) {
      entry.consumer[static_cast<int>(ValueKind::kActivation)] = placement.rank_of(next);
    }
    if (previous >= 0 && placement.rank_of(previous) != entry.rank) {
      entry.consumer[static_cast<int>(ValueKind::kGradient)] = placement.rank_of(previous);
    }
    if (costs_.by_slice.empty())
      SetPrices(Part{Op::kForward, static_cast<std::uint16_t>(stage)}, entry);
  }

  // Sets the times and memory of the part's stage (and slice).
  void SetPrices(Part part, StageEntry& entry) const {
    for (std::size_t op = 0; op < kComputeOps; ++op) {
      part.op = static_cast<Op>(op);
      entry.duration[op] = costs_.Duration(part);
    }
    entry.activation = costs_.Of(part).activation;
    entry.activation_after_i = costs_.Of(part).activation_after_i;
  }
  void FillSlices() {
    const std::size_t slices = costs_.by_slice.size() / stages_.size();
    by_slice_.resize(costs_.by_slice.size());
    for (std::size_t i = 0; i < by_slice_.size(); ++i) {
      SetPrices(
          {Op::kForward, static_cast<std::uint16_t>(i / slices), static_cast<int>(i % slices)},
          by_slice_[i]);
    }
  }
  const StageEntry& PricesOf(const Part& part) const {
    if (by_slice_.empty()) return stages_[part.stage];
    const std::size_t slices = by_slice_.size() / stages_.size();
    return by_slice_[part.stage * slices + Index(part.microbatch) % slices];
  }

  LaneEnd RunAll() {
    ranks_.assign(schedule_.lanes.size(), {});
    runnable_.clear();
    shared_.assign(schedule_.vocabulary ? kSharedValues * indices_ : 0, {});
    for (int rank = schedule_.ranks() - 1; rank >= 0; --rank) runnable_.push_back(rank);
    if (timeline_ != nullptr) {
      timeline_->spans.resize(ranks_.size());
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        timeline_->spans[r].clear();
        ReserveLong(timeline_->spans[r], schedule_.lanes[r].size());
      }
    }
    while (!runnable_.empty()) {
      current_ = runnable_.back();
      runnable_.pop_back();
      const LaneEnd end = RunCurrent();
      if (end != LaneEnd::kWaitsOrDone) return end;
    }
    return LaneEnd::kWaitsOrDone;
  }

  LaneEnd RunCurrent() {
    if (side_) {
      return timeline_ != nullptr ? RunLane<true, true>(current_) : RunLane<false, true>(current_);
    }
    return timeline_ != nullptr ? RunLane<true, false>(current_) : RunLane<false, false>(current_);
  }

  // Runs the rank's lane until it has to wait or ends.
  template <bool kWithTimes, bool kWithSide>
  LaneEnd RunLane(int rank) {
    const Lane& lane = schedule_.lanes[rank];
    LaneState& state = ranks_[rank];
    for (; state.position < lane.size(); ++state.position) {
      const Action& action = lane[state.position];
      __builtin_prefetch(&action + kActionsAhead);
      Span span{state.clock, state.clock};
      if (IsCompute(action)) {
        if (!IsOurs(action, rank)) return LaneEnd::kMalformed;
        if (!Compute<kWithSide>(action, rank, state, span.start)) return LaneEnd::kWaitsOrDone;
        span.end = state.clock;
      } else {
        const Part& part = action.first;
        if (IsCommunication(part.op)) {
          if (!explicit_) return LaneEnd::kSends;
          if (!IsOurs(part, rank)) return LaneEnd::kMalformed;
          if (!Send(part, state)) return LaneEnd::kWaitsOrDone;
        } else if (IsVocabulary(part.op)) {
          if (!schedule_.vocabulary || !IsOurs(part, rank)) return LaneEnd::kMalformed;
          if (!RunVocabulary(part, rank, state, span)) return LaneEnd::kWaitsOrDone;
        } else if ((side_ops_ & SideWork::Bit(part.op)) != 0) {
          if constexpr (!kWithSide) return LaneEnd::kSideWork;
          if (!IsOursOrStage(part, rank)) return LaneEnd::kMalformed;
          if (!RunSideWork(part, rank, state, span)) return LaneEnd::kWaitsOrDone;
        }
        ++state.others;
      }
      if constexpr (kWithTimes) {
        timeline_->spans[rank].push_back(span);
      }
    }
    return LaneEnd::kWaitsOrDone;
  }

  bool IsOurs(const Part& part, int rank) const {
    return part.stage < stages_.size() && Index(part.microbatch) < indices_ &&
           stages_[part.stage].rank == rank;
  }
  bool IsOurs(const Action& action, int rank) const {
    return IsOurs(action.first, rank) &&
           (!action.is_pair() || (IsCompute(action.second.op) && IsOurs(action.second, rank)));
  }

  // The same for an action that may have no microbatch.
  bool IsOursOrStage(const Part& part, int rank) const {
    if (HasMicrobatch(part.op)) return IsOurs(part, rank);
    return part.stage < stages_.size() && stages_[part.stage].rank == rank;
  }

  // Runs the action if it can. Otherwise records what it waits for.
  template <bool kWithSide>
  bool Compute(const Action& action, int rank, LaneState& state, double& start) {
    Arrivals::Key missing = Missing(action.first, rank, start);
    if (action.is_pair() && missing == kNothingMissing)
      missing = Missing(action.second, rank, start);
    if (missing != kNothingMissing) {
      state.waits_for = missing;
      return false;
    }
    if constexpr (kWithSide) {
      ForEachPart(action,
                  [&](const Part& part) { start = std::max(start, side_->EarliestStart(part)); });
    }
    const double duration = Duration(action);
    const double end = start + duration;
    if (state.first_start < 0) state.first_start = start;
    state.clock = end;
    state.busy += duration;
    if constexpr (kWithSide) {
      const std::size_t r = rank;
      ForEachPart(action, [&](const Part& part) { side_->Begin(r, part, start); });
      ForEachPart(action, [&](const Part& part) {
        if (side_->End(r, part, end)) WakeSteps();
        Publish(part, SentAt(action, end));
      });
    } else {
      ForEachPart(action, [&](const Part& part) { Allocate(part, state); });
      ForEachPart(action, [&](const Part& part) {
        Release(part, state);
        Publish(part, SentAt(action, end));
      });
    }
    return true;
  }

  // Runs a pass of the vocabulary. Returns false if it must wait.
  bool RunVocabulary(const Part& part, int rank, LaneState& state, Span& span) {
    double start = state.clock;
    state.waits_for = MissingOfVocabulary(part, rank, start);
    if (state.waits_for != kNothingMissing) return false;
    span = {start, start + costs_.Duration(part)};
    state.clock = span.end;
    state.busy += span.end - span.start;
    const StageCosts& costs = costs_.Of(part);
    if (side_) {
      side_->Begin(Index(rank), part, span.start);
      if (side_->End(Index(rank), part, span.end)) WakeSteps();
    } else {
      if (part.op == Op::kVocabularyInput) state.memory += costs.softmax;
      state.peak_memory = std::max(state.peak_memory, state.memory);
      state.memory -= costs.Freed(part.op);
    }
    if (part.op == Op::kEmbed) Join(SharedValue::kEmbedding, part.microbatch, span.end);
    if (part.op == Op::kVocabularyInput) Join(SharedValue::kSoftmax, part.microbatch, span.end);
    return true;
  }

  // Records one rank's share of a value of all ranks.
  void Join(SharedValue value, int microbatch, double end) {
    const std::size_t n = Index(microbatch);
    Joined& joined = shared_[Index(value) * indices_ + n];
    joined.end = std::max(joined.end, end);
    if (++joined.ranks < ranks_.size()) return;
    const Arrivals::Key key = SharedKey(value, n);
    arrivals_[key] = joined.end + costs_.exchange;
    WakeAll(key);
  }
  // Values of all ranks have the slots of one more stage.
  Arrivals::Key SharedKey(SharedValue value, std::size_t microbatch) const {
    return arrivals_.KeyOf(static_cast<ValueKind>(value), shared_stage_, microbatch);
  }
  void WakeAll(Arrivals::Key key) {
    for (int rank = 0; rank < schedule_.ranks(); ++rank) Wake(rank, key);
  }

  // As Missing, for what the part waits for because the vocabulary is sharded.
  Arrivals::Key MissingOfVocabulary(const Part& part, int rank, double& start) const {
    Arrivals::Key missing = kNothingMissing;
    const auto look = [&](Arrivals::Key key, double latency) {
      const double arrival = arrivals_[key];
      if (arrival == Arrivals::kNotComputed) {
        missing = key;
      } else {
        start = std::max(start, arrival + latency);
      }
    };
    ForEachVocabularyDependency(
        ends_, part,
        [&](const Value& value) {
          const std::size_t stage = Index(value.stage);
          look(arrivals_.KeyOf(value.kind, stage, Index(value.microbatch)),
               stages_[stage].rank == rank ? 0 : comm_);
        },
        [&](SharedValue value) { look(SharedKey(value, Index(part.microbatch)), 0); });
    return missing;
  }

  // Runs an action of SideWork::PricedOps. Returns false if it is a STEP that must wait.
  bool RunSideWork(const Part& part, int rank, LaneState& state, Span& span) {
    const SideWork::Outcome outcome = side_->Run(Index(rank), part, state.clock);
    if (!outcome.runs) {
      state.waits_for = kOtherGradients;
      return false;
    }
    span = outcome.span;
    if (OccupiesRank(part.op)) {
      state.clock = span.end;
      state.busy += span.end - span.start;
    }
    if (outcome.completes) WakeSteps();
    return true;
  }

  // Each waiting STEP checks again whether its gradients are complete.
  void WakeSteps() {
    for (int rank = 0; rank < schedule_.ranks(); ++rank) Wake(rank, kOtherGradients);
  }

  // Raises `start` to when all inputs of the part are available, or returns one that is not.
  Arrivals::Key Missing(const Part& part, int rank, double& start) const {
    Arrivals::Key missing = kNothingMissing;
    ForEachDependency(shape_, part, [&](const Value& value) {
      const std::size_t stage = value.stage;
      const std::size_t microbatch = value.microbatch;
      const Arrivals::Key key = arrivals_.KeyOf(value.kind, stage, microbatch);
      const double arrival = arrivals_[key];
      if (stages_[stage].rank == rank) {
        if (arrival == Arrivals::kNotComputed) missing = key;
      } else if (arrival < 0) {
        missing = key;
      } else {
        start = std::max(start, arrival);
      }
    });
    if (missing == kNothingMissing && ends_.last >= 0)
      missing = MissingOfVocabulary(part, rank, start);
    return missing;
  }

  double Duration(const Action& action) const {
    const Part& first = action.first;
    const double own = PricesOf(first).duration[Index(first.op)];
    if (!action.is_pair()) return own;
    const Part& second = action.second;
    const double other = PricesOf(second).duration[Index(second.op)];
    return first.op == Op::kForward ? overlap_.Price(own, other) : overlap_.Price(other, own);
  }

  // Returns when the results of an action that ends at `end` leave the rank.
  double SentAt(const Action& action, double end) const {
    if (!early_gradients_ || action.is_pair() || action.first.op != Op::kBackward) return end;
    const double* const times = PricesOf(action.first).duration;
    return end - std::max(0.0, times[Index(Op::kBackward)] - times[Index(Op::kBackwardInput)]);
  }

  void Allocate(const Part& part, LaneState& state) const {
    if (part.op != Op::kForward) return;
    state.memory += PricesOf(part).activation;
    state.peak_memory = std::max(state.peak_memory, state.memory);
  }

  void Release(const Part& part, LaneState& state) const {
    if (prices_vary_) {
      state.memory -= costs_.Of(part).Freed(part.op);
      state.peak_memory = std::max(state.peak_memory, state.memory);
      return;
    }
    const StageEntry& stage = stages_[part.stage];
    if (part.op == Op::kBackward) state.memory -= stage.activation;
    if (part.op == Op::kBackwardInput) state.memory -= stage.activation - stage.activation_after_i;
    if (part.op == Op::kBackwardWeight) state.memory -= stage.activation_after_i;
  }

  void Publish(const Part& part, double end) {
    if (part.op == Op::kBackwardWeight) return;
    const ValueKind kind = MadeBy(part.op);
    const Arrivals::Key key = arrivals_.KeyOf(kind, part.stage, Index(part.microbatch));
    arrivals_.Prefetch(key);
    const int consumer = stages_[part.stage].consumer[static_cast<int>(kind)];
    if (consumer == kNobody) {
      arrivals_[key] = end;
      if (ends_.last >= 0) WakeAll(key);
    } else if (explicit_) {
      arrivals_[key] = Arrivals::kNotSent;
    } else {
      arrivals_[key] = end + comm_;
      Wake(consumer, key);
    }
  }

  // Returns false if a SEND's value is not computed yet; the lane then waits. A RECV is only
  // posted.
  bool Send(const Part& part, LaneState& state) {
    if (part.op != Op::kSendForward && part.op != Op::kSendBackward) return true;
    const ValueKind kind =
        part.op == Op::kSendForward ? ValueKind::kActivation : ValueKind::kGradient;
    const Arrivals::Key key = arrivals_.KeyOf(kind, part.stage, Index(part.microbatch));
    if (arrivals_[key] == Arrivals::kNotComputed) {
      state.waits_for = key;
      return false;
    }
    const int consumer = stages_[part.stage].consumer[static_cast<int>(kind)];
    if (consumer == kNobody) return true;
    arrivals_[key] = state.clock + comm_;
    Wake(consumer, key);
    return true;
  }

  void Wake(int rank, Arrivals::Key key) {
    LaneState& state = ranks_[rank];
    if (state.waits_for != key) return;
    state.waits_for = kNothingMissing;
    runnable_.push_back(rank);
    // Read as soon as the current rank has to wait.
    const std::size_t r = rank;
    PrefetchRead(schedule_.lanes[r].data(), ranks_[r].position);
  }

  // Returns an error that names the waiting ranks and what they wait for, if any.
  Status CheckDone() const {
    constexpr std::size_t kNamed = 4;
    std::string waiting;
    std::size_t count = 0;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].position == schedule_.lanes[r].size()) continue;
      if (++count <= kNamed) waiting += (count > 1 ? "; " : "") + WaitText(r);
    }
    if (count == 0) return {};
    if (count > kNamed) waiting += fmt::format("; and {} more ranks", count - kNamed);
    return InvalidArgument("the schedule cannot run to its end: {}", waiting);
  }

  std::string WaitText(std::size_t rank) const {
    const LaneState& state = ranks_[rank];
    const Arrivals::Key key = state.waits_for;
    if (key == kOtherGradients) {
      return fmt::format("rank {} at {} waits for the gradients of other ranks", rank,
                         ToText(schedule_.lanes[rank][state.position]));
    }
    const std::size_t stage = arrivals_.StageOf(key);
    if (stage == shared_stage_) {
      const bool softmax = static_cast<SharedValue>(arrivals_.KindOf(key)) == SharedValue::kSoftmax;
      return fmt::format("rank {} at {} waits for {} of microbatch {} on every rank", rank,
                         ToText(schedule_.lanes[rank][state.position]), softmax ? "S" : "EMBED",
                         arrivals_.MicrobatchOf(key));
    }
    const bool gradient = arrivals_.KindOf(key) == ValueKind::kGradient;
    return fmt::format("rank {} at {} waits for the {} of stage {}, microbatch {} (rank {})", rank,
                       ToText(schedule_.lanes[rank][state.position]),
                       gradient ? "gradient" : "activation", stage, arrivals_.MicrobatchOf(key),
                       stages_[stage].rank);
  }

  const Schedule& schedule_;
  const Costs& costs_;
  Timeline* timeline_;
  const ChainShape shape_;
  const OverlapRule overlap_;
  const double comm_;
  const bool early_gradients_;
  const std::uint32_t side_ops_;
  const std::size_t indices_;
  bool explicit_ = false;     // values leave a rank only by a SEND
  bool prices_vary_ = false;  // slices differ, or some I allocates more than it frees
  int current_ = 0;
  std::vector<LaneState> ranks_;
  std::vector<StageEntry> stages_;
  std::vector<StageEntry> by_slice_;  // only times and memory, if slices differ
  const VocabularyEnds ends_;
  const std::size_t shared_stage_;  // see SharedKey
  std::vector<Joined> shared_;      // by (SharedValue, microbatch)
  Arrivals arrivals_;
  std::vector<int> runnable_;
  std::optional<SideWork> side_;  // set once the run has reached an action that needs it
};

}  // namespace

Result<SimulationResult> Simulate(const Schedule& schedule, const Costs& costs,
                                  const SimulateOptions& options) {
  PENSTOCK_TRY_STATUS(CheckInput(schedule, costs));
  Engine engine(schedule, costs, options.timeline);
  PENSTOCK_TRY_STATUS(engine.Run());
  return engine.Collect();
}

}  // namespace penstock
