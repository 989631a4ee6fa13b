// Moves activations to a slower pool between F and I or B, over a link of each rank's own.
//
//   before   0F0 0F1 0F2 0F3 0B0 0B1 ...
//   after    0F0 0OFFLOAD0 0F1 0F2 0F3 0RELOAD0 0B0 0B1 ...
//
// The schedule's times are known and stay as they are: a row is moved only if it is back when its
// I, B or RECOMPUTE starts. On each rank:
//   out    going over the rows in order of F, a row leaves behind its F if its turn on the link
//          comes within `patience` of the time it has to spare, and memory has passed `level`
//   back   going backwards over the rows in order of their reader, a row's RELOAD ends when its
//          reader starts, or when the link is needed for the next; if it would begin before the row
//          has left, the row stays where it is
// So a RELOAD stands before the action during which it may begin at the latest. Rows that wait long
// for the link are away for a short time only, so an eager choice fills the link with the wrong
// ones: several values of `patience` are tried, and the one with the lowest peak taken, on each
// rank for itself. Then `level` is raised as far as the peak (or the memory limit) lets it. Run it
// behind the passes that change times (split, overlap, sharding, recompute, optimizer): the promise
// that nothing waits is for the schedule it is given.
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

constexpr std::size_t kNever = ~std::size_t{0};

// A row between its F and its reader on one rank.
struct Row {
  Part forward;
  std::size_t f = 0;            // position of F in the lane
  std::size_t reader = kNever;  // of RECOMPUTE, I or B
  double begin = 0;             // end of F
  double end = 0;               // start of the reader
  double amount = 0;
};

class LaneOffloader {
 public:
  LaneOffloader(const Schedule& schedule, const Costs& costs, const Priced& priced, int rank)
      : lane_(schedule.lanes[rank]), costs_(costs) {
    const std::vector<Span>& spans = priced.timeline.spans[rank];
    rounding_ = priced.makespan * 1e-12;
    FindRows(schedule, rank, spans);
    double clock = 0;
    for (std::size_t i = 0; i < lane_.size(); ++i) {
      reached_.push_back(clock);
      if (OccupiesRank(lane_[i].first.op)) clock = spans[i].end;
    }
  }

  Lane Run(double level, double patience) {
    const std::vector<Trip> trips = ChooseTrips(level, patience);
    std::vector<std::vector<Action>> behind(lane_.size()), before(lane_.size());
    for (const Trip& trip : trips) {
      const Row& row = rows_[trip.row];
      if (trip.back == kNever) continue;
      behind[row.f].push_back(Cell(Op::kOffload, row));
      before[trip.back].push_back(Cell(Op::kReload, row));
    }
    Lane out;
    out.reserve(lane_.size() + 2 * trips.size());
    for (std::size_t i = 0; i < lane_.size(); ++i) {
      // Backwards: the trips come in order of their readers, from the last.
      out.insert(out.end(), before[i].rbegin(), before[i].rend());
      out.push_back(lane_[i]);
      out.insert(out.end(), behind[i].begin(), behind[i].end());
    }
    return out;
  }

 private:
  struct Trip {
    std::size_t row = 0;
    double left = 0;            // when it has left the rank's memory
    std::size_t back = kNever;  // position that its RELOAD stands before
  };

  static Action Cell(Op op, const Row& row) {
    return MakeAction(op, row.forward.stage, row.forward.microbatch);
  }
  double Time(Op op, const Row& row) const {
    return costs_.TransferTime(Cell(op, row).first, row.amount);
  }

  void FindRows(const Schedule& schedule, int rank, const std::vector<Span>& spans) {
    const std::size_t rows = schedule.rows();
    std::vector<std::size_t> local_of(schedule.stages());
    const std::vector<int>& stages = schedule.placement.stages_of(rank);
    for (std::size_t i = 0; i < stages.size(); ++i) local_of[stages[i]] = i;
    std::vector<std::size_t> row_of(stages.size() * rows, kNever);
    for (std::size_t i = 0; i < lane_.size(); ++i) {
      ForEachPart(lane_[i], [&](const Part& part) {
        const bool forward = part.op == Op::kForward;
        if (!forward && !MakesInputGradient(part.op) && part.op != Op::kRecompute) return;
        const StageCosts& stage = costs_.stages[part.stage];
        std::size_t& index = row_of[local_of[part.stage] * rows + Index(part.microbatch)];
        if (forward) {
          index = rows_.size();
          rows_.push_back({part, i, kNever, spans[i].end, 0, stage.activation});
          return;
        }
        Row& row = rows_[index];
        if (row.reader != kNever) return;
        row.reader = i;
        row.end = spans[i].start;
        if (part.op == Op::kRecompute) row.amount = stage.input_activation;
        readers_.push_back(index);
      });
    }
  }

  // What the rank holds when a row's F runs, with what is away at that time. A row counts as away
  // from when it has left to when its RELOAD would start with the link to itself.
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
    std::vector<Trip> trip_of(rows_.size());
    double link_free = 0;
    Memory memory;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const Row& row = rows_[r];
      // Its weight half may hold a part longer; that is beyond what a transfer can change.
      memory.Add(row.begin, row.amount);
      memory.Add(row.end, -row.amount);
      const double start = std::max(row.begin, link_free);
      const double left = start + Time(Op::kOffload, row);
      const double spare = row.end - row.begin - Time(Op::kOffload, row) - Time(Op::kReload, row);
      trip_of[r] = {r, -1, kNever};
      if (row.amount <= 0 || spare <= rounding_) continue;
      if (start - row.begin > patience * spare + rounding_) continue;
      if (memory.At(row.begin) <= level) continue;
      memory.Add(left, -row.amount);
      memory.Add(row.end - Time(Op::kReload, row), row.amount);
      link_free = left;
      trip_of[r].left = left;
    }
    return PlanReturns(trip_of);
  }

  // In order of the readers, from the last.
  std::vector<Trip> PlanReturns(const std::vector<Trip>& trip_of) const {
    std::vector<Trip> trips;
    double link_needed = std::numeric_limits<double>::infinity();
    std::size_t back = lane_.size();  // only goes down, as the starts do
    for (std::size_t i = readers_.size(); i-- > 0;) {
      Trip trip = trip_of[readers_[i]];
      if (trip.left < 0) continue;
      const Row& row = rows_[trip.row];
      const double start = std::min(row.end, link_needed) - Time(Op::kReload, row);
      if (start <= trip.left + rounding_) continue;
      link_needed = start;
      back = std::min(back, row.reader);
      while (reached_[back] > start + rounding_) --back;  // not beyond F, which has ended before it
      trip.back = back;
      trips.push_back(trip);
    }
    return trips;
  }

  const Lane& lane_;
  const Costs& costs_;
  double rounding_ = 0;               // what differs by less is equal
  std::vector<Row> rows_;             // in order of F
  std::vector<std::size_t> readers_;  // rows, in order of their readers
  std::vector<double> reached_;       // by position: the rank's clock when it reaches the cell
};

class Offloader {
 public:
  Offloader(const Schedule& schedule, const Costs& costs, const Pricer& price, const Priced& before)
      : schedule_(schedule), price_(price), before_(before) {
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      lanes_.emplace_back(schedule, costs, before, rank);
    }
  }

  Result<Schedule> Run(const std::optional<double>& limit) {
    const std::size_t ranks = lanes_.size();
    patience_.assign(ranks, 0);
    std::vector<double> lowest = before_.peak_memory;
    for (const double patience : {0.0, 0.125, 0.25, 0.5, 1.0}) {
      PENSTOCK_TRY(const Priced priced,
                   price_(Build(Levels(ranks, kEveryRow), Levels(ranks, patience))));
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
  std::vector<LaneOffloader> lanes_;  // by rank
  std::vector<double> patience_;      // by rank
};

}  // namespace

Result<Schedule> AddOffload(const Schedule& schedule, const Costs& costs, const Pricer& price,
                            const OffloadOptions& options) {
  if (HasOps(schedule, OpBit(Op::kOffload))) return schedule;
  if (!price) return InvalidArgument("it needs a simulator");
  PENSTOCK_TRY(const Priced before, price(schedule));
  return Offloader(schedule, costs, price, before).Run(options.memory_limit);
}

SchedulePass OffloadPass() {
  return {
      "offload", kLimitArgument,
      "OFFLOAD and RELOAD as far as nothing waits: to the lowest memory, or to LIMIT on each rank",
      [](const Schedule& schedule, PassArguments arguments,
         const PassContext& context) -> Result<Schedule> {
        const OffloadOptions options{.memory_limit = arguments.TakeNumber()};
        PENSTOCK_TRY_STATUS(arguments.Done());
        return AddOffload(schedule, context.costs, context.price, options);
      }};
}

}  // namespace penstock
