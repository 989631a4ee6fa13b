#include "runtime/measure/trace.h"

#include <algorithm>
#include <limits>

#include "base/index.h"

namespace penstock {

Result<Trace> Trace::Make(const Schedule& schedule, int kept_steps, std::span<const int> ranks) {
  if (kept_steps < 1) return InvalidArgument("a trace records at least 1 step, not {}", kept_steps);
  Trace trace;
  trace.schedule_ = &schedule;
  trace.kept_steps_ = kept_steps;
  trace.ranks_.resize(schedule.ranks());
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    Rank& own = trace.ranks_[rank];
    PENSTOCK_TRY(own.program, MakeProgram(schedule, rank));
    own.kept = ranks.empty() || std::ranges::find(ranks, rank) != ranks.end();
    if (own.kept) own.stamps.resize(own.program.size() * Index(kept_steps));
  }
  return trace;
}

std::size_t Trace::Offset(const Rank& rank, std::int64_t round) const {
  return Index(round % kept_steps_) * rank.program.size();
}

Stamp* Trace::Begin(int rank, std::int64_t round) {
  Rank& own = ranks_[rank];
  own.begun = round + 1;
  return own.stamps.data() + Offset(own, round);
}

std::span<const Stamp> Trace::RankStep(int rank, std::int64_t round) const {
  const Rank& own = ranks_[rank];
  return {own.stamps.data() + Offset(own, round), own.program.size()};
}

void Trace::Set(int rank, std::int64_t round, std::span<const Stamp> stamps) {
  Rank& own = ranks_[Index(rank)];
  PENSTOCK_CHECK(stamps.size() == own.program.size(), "{} stamps of rank {}", stamps.size(), rank);
  own.kept = true;
  own.stamps.resize(own.program.size() * Index(kept_steps_));
  std::ranges::copy(stamps, Begin(rank, round));
  End(rank, round);
}

std::int64_t Trace::first_round() const {
  std::int64_t begun = 0;
  for (const Rank& rank : ranks_) begun = std::max(begun, rank.begun);
  return std::max<std::int64_t>(0, begun - kept_steps_);
}

std::int64_t Trace::last_round() const {
  std::int64_t ended = std::numeric_limits<std::int64_t>::max();
  for (const Rank& rank : ranks_) {
    if (rank.kept) ended = std::min(ended, rank.ended);
  }
  return ended == std::numeric_limits<std::int64_t>::max() ? 0 : ended;
}

}  // namespace penstock
