// Moves activations to a slower pool between F and I or B, over each rank's own link, or its equal
// part of one that ranks share.
//
//   before   0F0 0F1 0F2 0F3 0B0 0B1 ...
//   after    0F0 0OFFLOAD0 0F1 0F2 0F3 0RELOAD0 0B0 0B1 ...
//
// The schedule's times are known and do not change: a microbatch is offloaded only if its RELOAD
// can end before its I, B or RECOMPUTE (its reader) starts. On each rank:
//   offload  in order of F, a microbatch is offloaded right after its F if the link is free within
//            `patience` of its spare time, and memory is above `level`
//   reload   in reverse order of the readers, a RELOAD ends when its reader starts, or when the
//   link
//            is needed for the next one; if it would start before the OFFLOAD has ended, the
//            microbatch is not offloaded
// A RELOAD is placed before the action during which it has to start at the latest. A microbatch
// that waits long for the link spends little time in the slower pool, so an eager choice fills the
// link with the wrong ones. The pass therefore tries several values of `patience`, and takes the
// one with the lowest peak on each rank. Then it raises `level` as far as the peak (or the memory
// limit) allows. Run it after the passes that change times (split, overlap, sharding, recompute,
// optimizer): no action waits only in the schedule that it is given.
#include <algorithm>
#include <functional>
#include <limits>
#include <queue>

#include "base/index.h"
#include "schedule/passes/lanes.h"
#include "schedule/passes/level_search.h"
#include "schedule/passes/pass_table.h"

namespace penstock {
namespace {

constexpr std::size_t kNoPosition = ~std::size_t{0};

// The activations of a microbatch on one rank, between F and their reader.
struct Activation {
  Part forward;
  std::size_t f = 0;                 // position of F in the lane
  std::size_t reader = kNoPosition;  // of RECOMPUTE, I or B
  double begin = 0;                  // end of F
  double end = 0;                    // start of the reader
  double amount = 0;
};

class LaneOffloader {
 public:
  LaneOffloader(const Schedule& schedule, const Costs& costs, const Priced& priced, int rank)
      : lane_(schedule.lanes[rank]), costs_(costs) {
    const std::vector<Span>& spans = priced.timeline.spans[rank];
    rounding_ = priced.makespan * 1e-12;
    FindActivations(schedule, rank, spans);
    double clock = 0;
    for (std::size_t i = 0; i < lane_.size(); ++i) {
      reached_.push_back(clock);
      if (KeepsRank(lane_[i].first.op)) clock = spans[i].end;
    }
  }

  Lane Run(double level, double patience) {
    const std::vector<Trip> trips = ChooseTrips(level, patience);
    std::vector<std::vector<Action>> after(lane_.size()), before(lane_.size());
    for (const Trip& trip : trips) {
      const Activation& activation = activations_[trip.activation];
      if (trip.back == kNoPosition) continue;
      after[activation.f].push_back(Cell(Op::kOffload, activation));
      before[trip.back].push_back(Cell(Op::kReload, activation));
    }
    Lane out;
    out.reserve(lane_.size() + 2 * trips.size());
    for (std::size_t i = 0; i < lane_.size(); ++i) {
      // Reversed: the trips come in order of their readers, from the last.
      out.insert(out.end(), before[i].rbegin(), before[i].rend());
      out.push_back(lane_[i]);
      out.insert(out.end(), after[i].begin(), after[i].end());
    }
    return out;
  }

 private:
  struct Trip {
    std::size_t activation = 0;
    double left = 0;                 // when it has left the rank's memory; -1 if it stays
    std::size_t back = kNoPosition;  // position that its RELOAD goes before
  };

  static Action Cell(Op op, const Activation& activation) {
    return MakeAction(op, activation.forward.stage, activation.forward.microbatch);
  }
  // On a link that ranks share, a transfer may first have to wait for one of each other rank.
  double Time(Op op, const Activation& activation) const {
    return costs_.offload_sharing *
           costs_.TransferTime(Cell(op, activation).first, activation.amount);
  }

  void FindActivations(const Schedule& schedule, int rank, const std::vector<Span>& spans) {
    const std::size_t indices = schedule.indices();
    std::vector<std::size_t> local_of(schedule.stages());
    const std::vector<int>& stages = schedule.placement.stages_of(rank);
    for (std::size_t i = 0; i < stages.size(); ++i) local_of[stages[i]] = i;
    std::vector<std::size_t> index_of(stages.size() * indices, kNoPosition);
    for (std::size_t i = 0; i < lane_.size(); ++i) {
      ForEachPart(lane_[i], [&](const Part& part) {
        const bool forward = part.op == Op::kForward;
        if (!forward && !MakesInputGradient(part.op) && part.op != Op::kRecompute) return;
        if (schedule.backward_of(part.stage) == StageBackward::kNone) return;  // it keeps nothing
        const StageCosts& stage = costs_.Of(part);
        std::size_t& index = index_of[local_of[part.stage] * indices + Index(part.microbatch)];
        if (forward) {
          index = activations_.size();
          activations_.push_back({part, i, kNoPosition, spans[i].end, 0, stage.activation});
          return;
        }
        Activation& activation = activations_[index];
        if (activation.reader != kNoPosition) return;
        activation.reader = i;
        activation.end = spans[i].start;
        if (part.op == Op::kRecompute) activation.amount = stage.input_activation;
        readers_.push_back(index);
      });
    }
  }

  // The memory that the rank holds when an F runs, less what is offloaded at that time. A
  // microbatch counts as offloaded from the end of its OFFLOAD until its RELOAD would start if it
  // had the link to itself.
  class Memory {
   public:
    void Add(double time, double amount) { changes_.push({time, amount}); }
    double At(double time) {
      for (; !changes_.empty() && changes_.top().first <= time; changes_.pop()) {
        held_ += changes_.top().second;
      }
      return held_;
    }

   private:
    using Change = std::pair<double, double>;
    std::priority_queue<Change, std::vector<Change>, std::greater<>> changes_;
    double held_ = 0;
  };

  std::vector<Trip> ChooseTrips(double level, double patience) const {
    std::vector<Trip> trip_of(activations_.size());
    double link_free = 0;
    Memory memory;
    for (std::size_t r = 0; r < activations_.size(); ++r) {
      const Activation& activation = activations_[r];
      // W may keep a part alive longer, which a transfer cannot change.
      memory.Add(activation.begin, activation.amount);
      memory.Add(activation.end, -activation.amount);
      const double start = std::max(activation.begin, link_free);
      const double left = start + Time(Op::kOffload, activation);
      const double spare = activation.end - activation.begin - Time(Op::kOffload, activation) -
                           Time(Op::kReload, activation);
      trip_of[r] = {r, -1, kNoPosition};
      if (activation.amount <= 0 || spare <= rounding_) continue;
      if (start - activation.begin > patience * spare + rounding_) continue;
      if (memory.At(activation.begin) <= level) continue;
      memory.Add(left, -activation.amount);
      memory.Add(activation.end - Time(Op::kReload, activation), activation.amount);
      link_free = left;
      trip_of[r].left = left;
    }
    return PlanReturns(trip_of);
  }

  // Plans the reloads in reverse order of the readers.
  std::vector<Trip> PlanReturns(const std::vector<Trip>& trip_of) const {
    std::vector<Trip> trips;
    double link_needed = std::numeric_limits<double>::infinity();
    std::size_t back = lane_.size();  // decreases, as the starts do
    for (std::size_t i = readers_.size(); i-- > 0;) {
      Trip trip = trip_of[readers_[i]];
      if (trip.left < 0) continue;
      const Activation& activation = activations_[trip.activation];
      const double start = std::min(activation.end, link_needed) - Time(Op::kReload, activation);
      if (start <= trip.left + rounding_) continue;
      link_needed = start;
      back = std::min(back, activation.reader);
      while (reached_[back] > start + rounding_) --back;  // stops at F, which has ended before
      trip.back = back;
      trips.push_back(trip);
    }
    return trips;
  }

  const Lane& lane_;
  const Costs& costs_;
  double rounding_ = 0;                  // times that differ by less are equal
  std::vector<Activation> activations_;  // in order of F
  std::vector<std::size_t> readers_;     // indices into activations_, in order of their readers
  std::vector<double> reached_;          // by position: the rank's clock when it reaches the action
};

class Offloader {
 public:
  Offloader(const Schedule& schedule, const Costs& costs, const Pricer& price, const Priced& before)
      : schedule_(schedule),
        price_(price),
        before_(before),
        shares_links_(costs.offload_sharing > 1) {
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      lanes_.emplace_back(schedule, costs, before, rank);
    }
  }

  Result<Schedule> Run(const std::optional<double>& limit) {
    if (shares_links_) return RunTogether(limit);
    const std::size_t ranks = lanes_.size();
    patience_.assign(ranks, 0);
    std::vector<double> lowest = before_.peak_memory;
    for (const double patience : kPatience) {
      PENSTOCK_TRY(const Priced priced,
                   price_(Build(Levels(ranks, kEveryMicrobatch), Levels(ranks, patience))));
      for (std::size_t r = 0; r < ranks; ++r) {
        if (priced.peak_memory[r] >= lowest[r]) continue;
        lowest[r] = priced.peak_memory[r];
        patience_[r] = patience;
      }
    }
    if (limit) lowest.assign(ranks, *limit);
    return SearchLevels(
        [&](const Levels& levels) -> Result<Schedule> { return Build(levels, patience_); }, price_,
        before_.peak_memory, lowest);
  }

 private:
  static constexpr double kPatience[] = {0, 0.125, 0.25, 0.5, 1};
  static constexpr double kRounding = 1e-9;  // relative, of sums of times and of activations

  // The peak of a rank depends on what the others send over its link. So all ranks have the same
  // patience, and the schedule is kept only if it delays nothing.
  Result<Schedule> RunTogether(const std::optional<double>& limit) {
    const std::size_t ranks = lanes_.size();
    Schedule best = schedule_;
    std::vector<double> lowest = before_.peak_memory;
    for (const double patience : kPatience) {
      Schedule schedule = Build(Levels(ranks, kEveryMicrobatch), Levels(ranks, patience));
      PENSTOCK_TRY(const Priced priced, price_(schedule));
      if (Delays(priced) || HighestOf(priced.peak_memory) >= HighestOf(lowest)) continue;
      best = std::move(schedule);
      lowest = priced.peak_memory;
      patience_.assign(ranks, patience);
    }
    if (limit && HighestOf(lowest) > *limit * (1 + kRounding)) {
      return MakeError(ErrorCode::kInfeasible, "a rank needs {:.4g}, above the limit of {:.4g}",
                       HighestOf(lowest), *limit);
    }
    if (patience_.empty()) return best;
    if (limit) lowest.assign(ranks, *limit);
    auto fewer = SearchLevels(
        [&](const Levels& levels) -> Result<Schedule> { return Build(levels, patience_); }, price_,
        before_.peak_memory, lowest);
    if (!fewer) return best;
    PENSTOCK_TRY(const Priced priced, price_(*fewer));
    return Delays(priced) ? best : std::move(*fewer);
  }
  bool Delays(const Priced& priced) const {
    return priced.makespan > before_.makespan * (1 + kRounding);
  }
  static double HighestOf(const std::vector<double>& peaks) {
    return peaks.empty() ? 0 : *std::ranges::max_element(peaks);
  }

  Schedule Build(const Levels& levels, const std::vector<double>& patience) {
    std::vector<Lane> lanes;
    for (std::size_t r = 0; r < lanes_.size(); ++r) {
      lanes.push_back(lanes_[r].Run(levels[r], patience[r]));
    }
    return WithLanes(schedule_, std::move(lanes));
  }

  const Schedule& schedule_;
  const Pricer& price_;
  const Priced& before_;
  const bool shares_links_;
  std::vector<LaneOffloader> lanes_;  // by rank
  std::vector<double> patience_;      // by rank
};

}  // namespace

Result<Schedule> AddOffload(const Schedule& schedule, const Costs& costs, const Pricer& price,
                            const OffloadOptions& options) {
  if (HasOps(schedule, OpBit(Op::kOffload))) return schedule;
  if (!price) return InvalidArgument("the pass needs a simulator");
  PENSTOCK_TRY(const Priced before, price(schedule));
  return Offloader(schedule, costs, price, before).Run(options.memory_limit);
}

SchedulePass OffloadPass() {
  return {
      "offload", kLimitArgument,
      "OFFLOAD and RELOAD without delaying anything: to the lowest memory, or to LIMIT per rank",
      [](const Schedule& schedule, PassArguments arguments,
         const PassContext& context) -> Result<Schedule> {
        const OffloadOptions options{.memory_limit = arguments.TakeNumber()};
        PENSTOCK_TRY_STATUS(arguments.Done());
        return AddOffload(schedule, context.costs, context.price, options);
      }};
}

}  // namespace penstock
