#include "simulate/side_work.h"

#include <algorithm>

#include "base/index.h"
#include "schedule/vocabulary.h"

namespace penstock {

void MemoryLedger::Allocate(double time, double amount) {
  Advance(time, true);
  held_ += amount;
  peak_ = std::max(peak_, held_);
}

void MemoryLedger::Free(double time, double amount) {
  Advance(time, false);
  held_ -= amount;
  peak_ = std::max(peak_, held_);  // a slice's backward may allocate more than it frees
}

void MemoryLedger::Later(Link link, double time, double amount) {
  std::vector<Change>& changes = queues_[link].changes;
  changes.push_back({time, link == kOffloads || link == kReshards ? -amount : amount});
  // A link runs its transfers in sequence, so this hardly ever moves anything.
  for (std::size_t i = changes.size() - 1;
       i > queues_[link].next && changes[i].time < changes[i - 1].time; --i) {
    std::swap(changes[i], changes[i - 1]);
  }
}

double MemoryLedger::Peak() {
  Advance(std::numeric_limits<double>::infinity(), true);
  return peak_;
}

void MemoryLedger::Advance(double time, bool all_at_it) {
  for (;;) {
    // The earliest change. Queues that free memory come first, so they win ties.
    Queue* first = nullptr;
    for (Queue& queue : queues_) {
      if (queue.next == queue.changes.size()) continue;
      if (first == nullptr || queue.changes[queue.next].time < first->changes[first->next].time) {
        first = &queue;
      }
    }
    if (first == nullptr) return;
    const Change& change = first->changes[first->next];
    const bool due =
        change.time < time || (change.time == time && (all_at_it || change.amount < 0));
    if (!due) return;
    held_ += change.amount;
    peak_ = std::max(peak_, held_);
    ++first->next;
  }
}

std::uint32_t SideWork::PricedOps(const Schedule& schedule, const Costs& costs) {
  std::uint32_t ops = Bit(Op::kOffload) | Bit(Op::kReload) | Bit(Op::kRecompute);
  bool unshard = false, reduce = false, step = false;
  for (const StageCosts& stage : costs.stages) {
    unshard = unshard || stage.unshard > 0 || stage.gathered > 0;
    reduce = reduce || stage.reduce > 0;
    step = step || stage.step > 0;
  }
  if (unshard || reduce) ops |= Bit(Op::kUnshard) | Bit(Op::kReshard) | Bit(Op::kReduceGrad);
  if (reduce || step || costs.steps_wait_for_all || schedule.placement.replicas() > 1) {
    ops |= Bit(Op::kStep) | Bit(Op::kReduceGrad);
  }
  if (reduce) ops |= Bit(Op::kWaitReduceGrad);
  return ops;
}

bool SideWork::SharesPoolLinks(const Schedule& schedule, const Costs& costs) {
  if (costs.offload_sharing == 1) return false;
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      if (action.first.op == Op::kOffload && costs.offload > 0) return true;
      if (action.first.op == Op::kReload && costs.reload > 0) return true;
    }
  }
  return false;
}

SideWork::SideWork(const Schedule& schedule, const Costs& costs)
    : schedule_(schedule),
      costs_(costs),
      holdings_(schedule, costs),
      indices_(schedule.indices()),
      indices_per_update_(
          std::max<std::size_t>(1, schedule.weights == WeightPolicy::kStashed
                                       ? Index(schedule.slices)
                                       : indices_ / Index(std::max(1, schedule.steps)))),
      updates_(indices_ / indices_per_update_),
      priced_(PricedOps(schedule, costs)),
      ledgers_(schedule.lanes.size()),
      collective_free_(schedule.lanes.size()),
      transfer_ends_(schedule.lanes.size()),
      pool_sharing_(SharesPoolLinks(schedule, costs) ? Index(costs.offload_sharing) : 1),
      pool_links_(schedule.lanes.size() / pool_sharing_ + 1) {
  const std::size_t stages = schedule.stages();
  unsharded_.resize(stages);
  reduced_.resize(stages);
  reductions_.resize(stages);
  steps_.resize(stages);
  std::uint32_t seen = 0;
  std::vector<bool> reduces(stages);
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      seen |= Bit(action.first.op);
      if (action.first.op == Op::kReduceGrad && action.first.stage < stages) {
        reduces[action.first.stage] = true;
      }
    }
  }
  if ((seen & Bit(Op::kOffload)) != 0) moved_.resize(stages * indices_);
  if ((seen & Bit(Op::kStep)) == 0) return;
  if (!costs.steps_wait_for_all && schedule.placement.replicas() == 1) return;
  const auto groups =
      costs.steps_wait_for_all ? std::size_t{1} : Index(schedule.placement.chain_length());
  gradients_.resize(groups * updates_);
  const std::vector<int> shares = GradientShares(schedule);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    group_.push_back(stage % groups);
    for (std::size_t update = 0; update < updates_; ++update) {
      gradients_[group_[stage] * updates_ + update].remaining +=
          static_cast<std::int64_t>(indices_per_update_) * shares[stage] + (reduces[stage] ? 1 : 0);
    }
  }
}

double SideWork::EarliestStart(const Part& part) const {
  double start = unsharded_[part.stage];
  const bool reads = MakesInputGradient(part.op) || part.op == Op::kRecompute;
  if (reads && !moved_.empty()) start = std::max(start, moved_[Key(part)]);
  return start;
}

void SideWork::Begin(std::size_t rank, const Part& part, double start) {
  if (part.op == Op::kForward) ledgers_[rank].Allocate(start, holdings_.Kept(part));
  if (part.op == Op::kVocabularyInput) ledgers_[rank].Allocate(start, costs_.Of(part).softmax);
}

bool SideWork::End(std::size_t rank, const Part& part, double end) {
  const double freed = holdings_.Freed(part);
  if (freed != 0) ledgers_[rank].Free(end, freed);
  if (!AddsGradients(schedule_.backward_of(part.stage), part.op)) return false;
  return Complete(part.stage, Index(part.microbatch) / indices_per_update_, end);
}

bool SideWork::Complete(std::size_t stage, std::size_t update, double time) {
  if (group_.empty() || update >= updates_) return false;
  Gradients& gradients = gradients_[group_[stage] * updates_ + update];
  gradients.ready = std::max(gradients.ready, time);
  return --gradients.remaining == 0;
}

SideWork::Outcome SideWork::Run(std::size_t rank, const Part& part, double clock, double factor) {
  if ((priced_ & Bit(part.op)) == 0) return {true, false, {clock, clock}};
  switch (part.op) {
    case Op::kStep:
      return RunStep(part, clock, factor);
    case Op::kRecompute:
      return RunRecompute(rank, part, clock, factor);
    case Op::kWaitReduceGrad:
      return {true, false, {clock, std::max(clock, reduced_[part.stage])}};
    case Op::kUnshard:
    case Op::kReshard:
    case Op::kReduceGrad:
      return RunCollective(rank, part, clock);
    default:
      return RunMove(rank, part, clock);
  }
}

const SideWork::Gradients* SideWork::NextGradients(std::size_t stage) const {
  if (group_.empty() || steps_[stage] >= updates_) return nullptr;
  return &gradients_[group_[stage] * updates_ + steps_[stage]];
}

double SideWork::StartOf(const Part& part, double clock) const {
  if (part.op == Op::kRecompute) return std::max(clock, EarliestStart(part));
  if (part.op != Op::kStep || (priced_ & Bit(part.op)) == 0) return clock;
  const Gradients* const gradients = NextGradients(part.stage);
  if (gradients != nullptr && gradients->remaining > 0) return clock;
  return std::max({clock, reduced_[part.stage], gradients != nullptr ? gradients->ready : 0});
}

SideWork::Outcome SideWork::RunStep(const Part& part, double clock, double factor) {
  const Gradients* const gradients = NextGradients(part.stage);
  if (gradients != nullptr && gradients->remaining > 0) return {false, false, {}};
  const double start = StartOf(part, clock);
  ++steps_[part.stage];
  return {true, false, {start, start + factor * costs_.Duration(part)}};
}

SideWork::Outcome SideWork::RunCollective(std::size_t rank, const Part& part, double clock) {
  MemoryLedger& ledger = ledgers_[rank];
  const double gathered = costs_.stages[part.stage].gathered;
  if (part.op == Op::kReshard) {
    const double time = std::max(clock, unsharded_[part.stage]);
    ledger.Later(MemoryLedger::kReshards, time, gathered);
    return {true, false, {time, time}};
  }
  double& link = collective_free_[rank];
  const double start = std::max(clock, link);
  const double end = start + costs_.TransferTime(part, 0);
  link = end;
  transfer_ends_[rank] = std::max(transfer_ends_[rank], end);
  if (part.op == Op::kUnshard) {
    unsharded_[part.stage] = end;
    ledger.Later(MemoryLedger::kUnshards, start, gathered);
    return {true, false, {start, end}};
  }
  reduced_[part.stage] = end;
  const bool completes = Complete(part.stage, reductions_[part.stage]++, end);
  return {true, completes, {start, end}};
}

SideWork::Outcome SideWork::RunRecompute(std::size_t rank, const Part& part, double clock,
                                         double factor) {
  const double start = StartOf(part, clock);
  ledgers_[rank].Allocate(start, holdings_.Recomputed(part));
  return {true, false, {start, start + factor * costs_.Duration(part)}};
}

SideWork::Outcome SideWork::RunMove(std::size_t rank, const Part& part, double clock) {
  MemoryLedger& ledger = ledgers_[rank];
  const double amount = holdings_.Kept(part);
  const double time = costs_.TransferTime(part, amount);
  PoolLinks& links = pool_links_[rank / pool_sharing_];
  if (part.op == Op::kOffload) {
    const double start = std::max(clock, links.offload_free);
    links.offload_free = moved_[Key(part)] = start + time;
    transfer_ends_[rank] = std::max(transfer_ends_[rank], start + time);
    ledger.Later(MemoryLedger::kOffloads, start + time, amount);
    return {true, false, {start, start + time}};
  }
  // An OFFLOAD in flight ends before the RELOAD starts.
  const double offloaded = moved_.empty() ? 0 : moved_[Key(part)];
  const double start = std::max({clock, links.reload_free, offloaded});
  links.reload_free = start + time;
  transfer_ends_[rank] = std::max(transfer_ends_[rank], start + time);
  if (!moved_.empty()) moved_[Key(part)] = start + time;
  ledger.Later(MemoryLedger::kReloads, start, amount);
  return {true, false, {start, start + time}};
}

}  // namespace penstock
