#include "simulate/simulate.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/index.h"
#include "base/system/prefetch.h"
#include "schedule/deps.h"
#include "schedule/reserve.h"
#include "schedule/text/text.h"
#include "schedule/untrained.h"
#include "schedule/vocabulary.h"
#include "simulate/arrivals.h"
#include "simulate/checks.h"
#include "simulate/engine_state.h"
#include "simulate/free_links.h"
#include "simulate/message_exchange.h"
#include "simulate/message_times.h"
#include "simulate/noise/jitter.h"
#include "simulate/side_work.h"
#include "simulate/stage_prices.h"
#include "simulate/summary.h"

namespace penstock {
namespace {

// The number of actions of a lane that are fetched ahead. A hundred or more lanes that alternate
// are too many streams for hardware prefetchers: 42 to 72 million actions/s at 256 ranks.
constexpr std::size_t kActionsAhead = 8;

// Runs every lane as far as it goes, and resumes a lane when the value that it waits for is there.
// Each action is visited once, plus once for each time that its rank had to wait: linear.
//
// The placement determines the one other rank, if any, that needs a value. So one slot per value is
// all the bookkeeping: there is no queue of events and no map of waiters.
class Engine {
 public:
  Engine(const Schedule& schedule, const Costs& costs, const SimulateOptions& options)
      : schedule_(schedule),
        costs_(costs),
        timeline_(options.timeline),
        messages_(options.messages),
        jitter_(options.jitter),
        shape_(ChainShape::Of(schedule)),
        comm_(costs.topology.empty()
                  ? costs.comm
                  : costs.topology.LongestTime(schedule.ranks(), costs.LargestMessage())),
        side_ops_(SideWork::PricedOps(schedule, costs)),
        indices_(schedule.indices()),
        ends_(VocabularyEnds::Of(schedule)),
        shared_stage_(Index(schedule.stages())),
        stages_(schedule, costs),
        arrivals_(shared_stage_ + (schedule.vocabulary ? 1 : 0), indices_) {
    for (int stage = 0; stage < schedule.stages(); ++stage) SetRanks(stage);
    // The list has each rank at most once, so it never grows while running.
    runnable_.reserve(schedule.lanes.size());
    ranks_.resize(schedule.lanes.size());
    if (SideWork::SharesPoolLinks(schedule, costs)) {
      RunsInOrderOfTime();
    } else if (MessageExchange::Needed(costs)) {
      const bool may_be_free = messages_ == nullptr && costs.transfers != Transfers::kBatched;
      if (may_be_free) {
        free_links_.emplace(costs, schedule.ranks());
        free_at_.resize(schedule.lanes.size());
      } else {
        RunsInOrderOfTime();
      }
    }
  }

  Status Run() {
    // Few schedules have actions other than compute, and those have them early. So instead of
    // searching for them first, the first one that is reached restarts the run.
    if (jitter_ != nullptr) side_.emplace(schedule_, costs_);  // the loop without it has no jitter
    LaneEnd end = RunToEnd();
    if (free_links_ && free_links_->WereShared()) {
      free_links_.reset();
      RunsInOrderOfTime();
      if (side_) side_.emplace(schedule_, costs_);
      arrivals_.Clear();
      end = RunToEnd();
    }
    if (end == LaneEnd::kMalformed) {
      const std::size_t position = ranks_[current_].position;
      return InvalidArgument("rank {}, position {}: {} does not belong to this rank", current_,
                             position, ToText(schedule_.lanes[current_][position]));
    }
    if (messages_ && !exchange_) AddMessages(stages_, arrivals_, indices_, comm_, *messages_);
    return CheckDone(schedule_, ranks_, arrivals_);
  }

  // Runs with what the lanes turn out to have.
  LaneEnd RunToEnd() {
    LaneEnd end = RunAll();
    while (end == LaneEnd::kSends || end == LaneEnd::kSideWork) {
      explicit_ = explicit_ || end == LaneEnd::kSends;
      if (explicit_ && HasWaitSend(schedule_)) posted_.emplace(shared_stage_, indices_);
      if (end == LaneEnd::kSideWork || side_) side_.emplace(schedule_, costs_);
      arrivals_.Clear();
      end = RunAll();
    }
    return end;
  }

  SimulationResult Collect() {
    SimulationResult result;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const LaneState& state = ranks_[r];
      result.actions += state.position - state.others;
      const double peak = side_ ? side_->Peak(r) : state.peak_memory;
      // Only actions that occupy the rank advance its clock.
      double last_end = last_ends_.empty() ? state.clock : last_ends_[r];
      if (side_) last_end = std::max(last_end, side_->LastTransferEnd(r));
      result.ranks.push_back({state.busy, std::max(state.first_start, 0.0), last_end, peak});
    }
    FillTotals(schedule_, result);
    return result;
  }

 private:
  void RunsInOrderOfTime() {
    exchange_.emplace(costs_, ranks_);
    held_.resize(ranks_.size());
    turns_.resize(ranks_.size());
  }

  void SetRanks(int stage) {
    const Placement& placement = schedule_.placement;
    StageEntry& entry = stages_[stage];
    entry.rank = placement.rank_of(stage);
    for (const ValueKind kind : {ValueKind::kActivation, ValueKind::kGradient}) {
      const int reader = ReaderOf(schedule_, kind, stage);
      if (reader < 0 || placement.rank_of(reader) == entry.rank) continue;
      entry.consumer[static_cast<int>(kind)] = placement.rank_of(reader);
    }
  }

  LaneEnd RunAll() {
    arrives_later_ = explicit_ || exchange_ || free_links_;
    if (exchange_ || free_links_) last_ends_.assign(ranks_.size(), 0);
    if (free_links_) {
      free_links_->Clear();
      free_at_.assign(ranks_.size(), 0);
    }
    if (messages_ != nullptr) messages_->clear();
    if (posted_) posted_->Clear();
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
    if (exchange_) return RunInOrderOfTime();
    while (!runnable_.empty()) {
      current_ = runnable_.back();
      runnable_.pop_back();
      const LaneEnd end = RunCurrent();
      if (end != LaneEnd::kWaitsOrDone) return end;
    }
    return LaneEnd::kWaitsOrDone;
  }

  LaneEnd RunCurrent() {
    if (exchange_) return RunCurrentAs<Order::kOfTime>();
    return free_links_ ? RunCurrentAs<Order::kFreeLinks>() : RunCurrentAs<Order::kAny>();
  }
  template <Order kOrder>
  LaneEnd RunCurrentAs() {
    if (side_) {
      return timeline_ != nullptr ? RunLane<kOrder, true, true>(current_)
                                  : RunLane<kOrder, false, true>(current_);
    }
    return timeline_ != nullptr ? RunLane<kOrder, true, false>(current_)
                                : RunLane<kOrder, false, false>(current_);
  }

  // Runs one action at a time, and no message or transfer leaves before an earlier one: what shares
  // a link, and who waits for whom, depends on the order.
  LaneEnd RunInOrderOfTime() {
    exchange_->Clear();
    held_.assign(held_.size(), 0);
    turns_.assign(turns_.size(), {});
    runnable_.clear();
    for (int rank = 0; rank < schedule_.ranks(); ++rank) Proceed(rank);
    for (;;) {
      const double event = exchange_->NextEvent();
      if (!runnable_.empty() && Goes(turns_[runnable_.front()], event)) {
        std::pop_heap(runnable_.begin(), runnable_.end(), Later{turns_});
        current_ = runnable_.back();
        runnable_.pop_back();
        held_[current_] = exchange_->Blocks(current_);  // by a message since it was put in line
        if (held_[current_]) continue;
        const LaneEnd end = RunCurrent();
        if (end != LaneEnd::kWaitsOrDone) return end;
      } else if (event < std::numeric_limits<double>::infinity()) {
        if (const auto arrived = exchange_->Advance()) Deliver(*arrived);
      } else {
        return LaneEnd::kWaitsOrDone;
      }
    }
  }

  // A rank that has ended an action lets a message leave that can leave then; one whose inputs are
  // there starts.
  static bool Goes(const Turn& turn, double event) {
    return turn.time < event || (turn.chosen && turn.time == event);
  }

  // Whether the rank waits until `start` for its next action. Messages may leave or arrive until
  // then, so it chooses its action only once it starts.
  bool Defers(int rank, double start) {
    Turn& turn = turns_[rank];
    if (!exchange_->HoldsReceivers() || turn.chosen || start <= ranks_[rank].clock) return false;
    turn = {start, true};
    PutInLine(rank);
    return true;
  }

  // Enqueues the rank for its next action, unless messages keep it waiting.
  void Proceed(int rank) {
    if (ranks_[rank].position == schedule_.lanes[rank].size()) return;
    held_[rank] = exchange_->Blocks(rank);
    if (!held_[rank]) MakeRunnable(rank);
  }

  void Deliver(const Network::Message& message) {
    arrivals_[message.key] = message.time;
    if (messages_ != nullptr) messages_->push_back(ToSentMessage(message, arrivals_));
    Wake(message.to, message.key);
    if (posted_) Wake(message.from, message.key);
    Resume(message.from, message.time);
    Resume(message.to, message.time);
  }
  // Lets a rank that its messages kept waiting go on after the last of them.
  void Resume(int rank, double time) {
    if (!held_[rank] || exchange_->Blocks(rank)) return;
    ranks_[rank].clock = std::max(ranks_[rank].clock, time);
    Proceed(rank);
  }

  void MakeRunnable(int rank) {
    if (!exchange_) {
      runnable_.push_back(rank);
      return;
    }
    turns_[rank] = {ranks_[rank].clock, false};
    PutInLine(rank);
  }
  void PutInLine(int rank) {
    runnable_.push_back(rank);
    std::push_heap(runnable_.begin(), runnable_.end(), Later{turns_});
  }

  // Runs the rank's lane until it has to wait or ends; in order of time, one action.
  template <Order kOrder, bool kWithTimes, bool kWithSide>
  LaneEnd RunLane(int rank) {
    const Lane& lane = schedule_.lanes[rank];
    LaneState& state = ranks_[rank];
    for (; state.position < lane.size(); ++state.position) {
      const Action& action = lane[state.position];
      __builtin_prefetch(&action + kActionsAhead);
      Span span{state.clock, state.clock};
      if (IsCompute(action)) {
        if (!IsOurs(action, rank)) return LaneEnd::kMalformed;
        if (!Compute<kOrder, kWithSide>(action, rank, state, span.start))
          return LaneEnd::kWaitsOrDone;
        span.end = state.clock;
      } else {
        const Part& part = action.first;
        if (IsCommunication(part.op)) {
          if (!explicit_) return LaneEnd::kSends;
          if (!IsOurs(part, rank)) return LaneEnd::kMalformed;
          if (!Communicate(part, state)) return LaneEnd::kWaitsOrDone;
          span.end = state.clock;
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
      if constexpr (kOrder != Order::kAny) {
        if (KeepsRank(action.first.op)) last_ends_[rank] = state.clock;
      }
      if constexpr (kOrder == Order::kFreeLinks) {
        state.clock = std::max(state.clock, free_at_[rank]);
      }
      if constexpr (kOrder == Order::kOfTime) {
        ++state.position;
        Proceed(rank);
        return LaneEnd::kWaitsOrDone;
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

  // Returns whether a part that may have no microbatch is the rank's own.
  bool IsOursOrStage(const Part& part, int rank) const {
    if (HasMicrobatch(part.op)) return IsOurs(part, rank);
    return part.stage < stages_.size() && stages_[part.stage].rank == rank;
  }

  // Returns the factor of the rank's next action.
  double Factor(int rank, const LaneState& state) const {
    return jitter_ == nullptr ? 1 : jitter_->Factor(Index(rank), state.position);
  }

  // Runs the action if it can. Otherwise records what it waits for.
  template <Order kOrder, bool kWithSide>
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
    if constexpr (kOrder == Order::kOfTime) {
      if (Defers(rank, start)) return false;
    }
    const double factor = kWithSide ? Factor(rank, state) : 1;
    const double duration = factor * stages_.Duration(action);
    const double end = start + duration;
    if (state.first_start < 0) state.first_start = start;
    state.clock = end;
    state.busy += duration;
    const double sent = stages_.SentAt(action, end, factor);
    if constexpr (kWithSide) {
      ForEachPart(action, [&](const Part& part) { side_->Begin(Index(rank), part, start); });
      ForEachPart(action, [&](const Part& part) {
        if (side_->End(Index(rank), part, end)) WakeSteps();
        Publish(part, sent);
      });
    } else {
      ForEachPart(action, [&](const Part& part) { stages_.Allocate(part, state); });
      ForEachPart(action, [&](const Part& part) {
        stages_.Release(part, state);
        Publish(part, sent);
      });
    }
    return true;
  }

  // Runs a pass of the vocabulary. Returns false if it must wait.
  bool RunVocabulary(const Part& part, int rank, LaneState& state, Span& span) {
    double start = state.clock;
    state.waits_for = MissingOfVocabulary(part, rank, start);
    if (state.waits_for != kNothingMissing || (exchange_ && Defers(rank, start))) return false;
    span = {start, start + Factor(rank, state) * costs_.Duration(part)};
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

  // Runs an action of SideWork::PricedOps. Returns false if it must wait.
  bool RunSideWork(const Part& part, int rank, LaneState& state, Span& span) {
    if (exchange_ && Defers(rank, side_->StartOf(part, state.clock))) return false;
    const auto outcome = side_->Run(Index(rank), part, state.clock, Factor(rank, state));
    if (!outcome.runs) {
      state.waits_for = kOtherGradients;
      return false;
    }
    span = outcome.span;
    if (KeepsRank(part.op)) state.clock = span.end;
    if (OccupiesRank(part.op)) state.busy += span.end - span.start;
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

  void Publish(const Part& part, double end) {
    if (part.op == Op::kBackwardWeight) return;
    const ValueKind kind = MadeBy(part.op);
    const Arrivals::Key key = arrivals_.KeyOf(kind, part.stage, Index(part.microbatch));
    arrivals_.Prefetch(key);
    const int consumer = stages_[part.stage].consumer[static_cast<int>(kind)];
    if (consumer == kNobody) {
      arrivals_[key] = end;
      if (ends_.last >= 0) WakeAll(key);
    } else if (arrives_later_) {
      SendLater(part, key, consumer, end);
    } else {
      arrivals_[key] = end + comm_;
      Wake(consumer, key);
    }
  }

  // What most schedules do not need is kept out of the loop.
  [[gnu::noinline]] void SendLater(const Part& part, Arrivals::Key key, int to, double time) {
    arrivals_[key] = Arrivals::kNotSent;
    if (!explicit_) SendOverLinks(part, key, to, time);
  }
  void SendOverLinks(const Part& part, Arrivals::Key key, int to, double time) {
    // A gradient has the size of the activation that it belongs to.
    const bool is_activation = part.op == Op::kForward || part.op == Op::kSendForward;
    const int producer = is_activation ? part.stage : schedule_.placement.previous(part.stage);
    const double size = costs_.MessageSize(producer, part);
    const int from = stages_[part.stage].rank;
    if (exchange_) {
      exchange_->Send({key, from, to, time, size});
      return;
    }
    const double arrival = free_links_->Send(from, to, time, size);
    arrivals_[key] = arrival;
    if (costs_.transfers == Transfers::kBlocking)
      free_at_[from] = std::max(free_at_[from], arrival);
    Wake(to, key);
  }

  // Runs a communication action, if it can. A RECV is only posted; a WAIT_SEND also waits for it.
  bool Communicate(const Part& part, LaneState& state) {
    if (IsRecv(part.op) && !posted_) return true;
    const Value value = MessageOf(part);
    if (value.stage < 0 || Index(value.stage) >= stages_.size()) return true;
    const Arrivals::Key key = arrivals_.KeyOf(value.kind, value.stage, Index(value.microbatch));
    const int consumer = stages_[value.stage].consumer[static_cast<int>(value.kind)];
    if (IsSend(part.op)) return Send(part, key, consumer, state);
    if (consumer == kNobody) return true;
    double& posted = (*posted_)[key];
    if (IsRecv(part.op)) {
      posted = state.clock;
      Wake(stages_[value.stage].rank, key);
    } else if (arrivals_[key] < 0 || posted < 0) {
      state.waits_for = key;
      return false;
    } else {
      state.clock = std::max({state.clock, arrivals_[key], posted});
    }
    return true;
  }

  bool Send(const Part& part, Arrivals::Key key, int consumer, LaneState& state) {
    if (arrivals_[key] == Arrivals::kNotComputed) {
      state.waits_for = key;
      return false;
    }
    if (consumer == kNobody) return true;
    if (exchange_ || free_links_) {
      SendOverLinks(part, key, consumer, state.clock);
    } else {
      arrivals_[key] = state.clock + comm_;
      Wake(consumer, key);
    }
    return true;
  }

  void Wake(int rank, Arrivals::Key key) {
    LaneState& state = ranks_[rank];
    if (state.waits_for != key) return;
    state.waits_for = kNothingMissing;
    MakeRunnable(rank);
    // Read as soon as the current rank has to wait.
    PrefetchRead(schedule_.lanes[rank].data(), state.position);
  }

  const Schedule& schedule_;
  const Costs& costs_;
  Timeline* timeline_;
  std::vector<SentMessage>* messages_;
  const Jitter* jitter_;
  const ChainShape shape_;
  const double comm_;
  const std::uint32_t side_ops_;
  const std::size_t indices_;
  bool explicit_ = false;       // values leave a rank only by a SEND
  bool arrives_later_ = false;  // explicit_, or messages cost more than one latency
  int current_ = 0;
  std::vector<LaneState> ranks_;
  const VocabularyEnds ends_;
  const std::size_t shared_stage_;  // see SharedKey
  StagePrices stages_;
  std::vector<Joined> shared_;  // by (SharedValue, microbatch)
  Arrivals arrivals_;
  std::optional<Arrivals> posted_;  // when RECVs were posted, if any rank waits for its messages
  std::vector<int> runnable_;
  std::optional<MessageExchange> exchange_;  // if the ranks run in order of time
  std::optional<FreeLinks> free_links_;      // as long as no two messages share a link
  std::vector<double> free_at_;              // by rank, if free_links_: when its messages arrived
  std::vector<char> held_;         // by rank: whether messages keep it from its next action
  std::vector<Turn> turns_;        // by rank, if exchange_
  std::vector<double> last_ends_;  // by rank, if exchange_ or free_links_: of the last action that
                                   // occupies it
  std::optional<SideWork> side_;   // set once the run has reached an action that needs it
};

}  // namespace

Result<SimulationResult> Simulate(const Schedule& schedule, const Costs& given,
                                  const SimulateOptions& options) {
  PENSTOCK_TRY_STATUS(CheckInput(schedule, given));
  std::optional<Costs> untrained;
  if (IsUntrained(schedule)) untrained = CostsWithoutBackward(schedule, given);
  Engine engine(schedule, untrained ? *untrained : given, options);
  PENSTOCK_TRY_STATUS(engine.Run());
  return engine.Collect();
}

}  // namespace penstock
