#include "schedule/untrained.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/index.h"
#include "base/text/quote.h"
#include "schedule/deps.h"

namespace penstock {
namespace {

constexpr std::string_view kSeparators = ",; \t";

bool Has(const std::vector<int>& stages, int stage) {
  return std::ranges::binary_search(stages, stage);
}

std::optional<int> TakeStage(std::string_view& text) {
  int stage = 0;
  std::size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
    if (stage < kMaxStages) stage = stage * 10 + (text[digits] - '0');
  }
  text.remove_prefix(digits);
  if (digits == 0 || stage >= kMaxStages) return std::nullopt;
  return stage;
}

// Reads "3" or "0-2".
bool AppendRange(std::string_view text, std::vector<int>& stages) {
  const std::optional<int> first = TakeStage(text);
  std::optional<int> last = first;
  if (first && text.starts_with('-')) {
    text.remove_prefix(1);
    last = TakeStage(text);
  }
  if (!first || !last || !text.empty() || *last < *first) return false;
  for (int stage = *first; stage <= *last; ++stage) stages.push_back(stage);
  return true;
}

// Writes one lane without what its stages lack.
class LaneWithout {
 public:
  explicit LaneWithout(const Schedule& schedule)
      : schedule_(schedule), gathered_at_(Index(schedule.stages()), kNowhere) {}

  Lane Of(const Lane& lane) {
    for (const Action& action : lane) {
      Action kept = {Kept(action.first), Kept(action.second)};
      if (kept.first.op == Op::kNone) std::swap(kept.first, kept.second);
      if (kept.first.op != Op::kNone) Append(kept);
    }
    std::erase_if(out_, [](const Action& action) { return action.first.op == Op::kNone; });
    return std::move(out_);
  }

 private:
  static constexpr std::size_t kNowhere = ~std::size_t{0};

  Part Kept(Part part) const {
    if (part.op == Op::kNone) return part;
    const StageBackward backward = schedule_.backward_of(part.stage);
    if (part.op == Op::kBackward && Runs(backward, Op::kBackwardInput) &&
        !Runs(backward, Op::kBackwardWeight)) {
      part.op = Op::kBackwardInput;
    }
    const bool sends_gradient = part.op == Op::kSendBackward || part.op == Op::kWaitSendBackward;
    const bool unread = sends_gradient && ReaderOf(schedule_, ValueKind::kGradient, part.stage) < 0;
    return unread || !Runs(backward, part.op) ? Part{} : part;
  }

  // Weights that were gathered only for what is removed are not gathered.
  void Append(const Action& action) {
    const Op op = action.first.op;
    std::size_t& gathered_at = gathered_at_[action.first.stage];
    if (op == Op::kReshard && gathered_at != kNowhere) {
      out_[gathered_at] = MakeAction(Op::kNone, 0);
      gathered_at = kNowhere;
      return;
    }
    if (op == Op::kUnshard) gathered_at = out_.size();
    if (IsCompute(op) || op == Op::kRecompute) {
      ForEachPart(action, [&](const Part& part) { gathered_at_[part.stage] = kNowhere; });
    }
    out_.push_back(action);
  }

  const Schedule& schedule_;
  std::vector<std::size_t> gathered_at_;  // by stage: its UNSHARD, if nothing has used it yet
  Lane out_;
};

// Stages that share a parameter add up its gradients, so all or none of them are trained.
Status KeepShared(Schedule& schedule) {
  for (std::size_t i = 0; i < schedule.shared.size(); ++i) {
    const std::vector<int>& stages = schedule.shared[i];
    const auto trained = std::ranges::count_if(
        stages, [&](int stage) { return schedule.backward_of(stage) == StageBackward::kWhole; });
    if (trained == 0 || trained == std::ssize(stages)) continue;
    return InvalidArgument(
        "stages {} share a parameter, so either all of them are trained or none: freeze the "
        "others, too",
        StagesText(stages));
  }
  std::erase_if(schedule.shared, [&](const std::vector<int>& stages) {
    return schedule.backward_of(stages.front()) != StageBackward::kWhole;
  });
  return {};
}

void RemoveCosts(StageBackward backward, StageCosts& stage) {
  if (backward == StageBackward::kWhole) return;
  stage.activation_after_i = stage.backward_weight = stage.saved_by_whole_backward = 0;
  if (backward == StageBackward::kAdapters) return;
  stage.gradients = stage.optimizer = stage.version = stage.step = stage.reduce = 0;
  if (backward != StageBackward::kNone) return;
  stage.activation = stage.input_activation = stage.backward_input = stage.recompute = 0;
  stage.gradients_of_others = 0;
}

}  // namespace

Result<std::vector<int>> ParseStages(std::string_view text) {
  std::vector<int> stages;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(kSeparators), text.size());
    if (end > 0 && !AppendRange(text.substr(0, end), stages)) {
      return InvalidArgument("{} is neither a stage (3) nor a range of stages (0-2)",
                             Quote(text.substr(0, end)));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (stages.empty()) return InvalidArgument("it names no stage; give stages (0-2,5)");
  std::ranges::sort(stages);
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
  return stages;
}

std::string StagesText(const std::vector<int>& stages) {
  std::string text;
  for (std::size_t i = 0; i < stages.size();) {
    std::size_t last = i;
    while (last + 1 < stages.size() && stages[last + 1] == stages[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ";", stages[i]);
    if (last > i) text += fmt::format("-{}", stages[last]);
    i = last + 1;
  }
  return text;
}

Result<std::vector<StageBackward>> BackwardsOf(const Untrained& untrained, int chain_length) {
  for (const auto& [name, stages] :
       {std::pair("frozen", &untrained.frozen), {"adapters", &untrained.adapters}}) {
    if (stages->empty() || stages->back() < chain_length) continue;
    return InvalidParameter(name, "{}: the model has stages 0 to {}", StagesText(*stages),
                            chain_length - 1);
  }
  std::vector<StageBackward> backwards;
  if (untrained.empty()) return backwards;
  bool trains_before = false;
  for (int stage = 0; stage < chain_length; ++stage) {
    const bool frozen = Has(untrained.frozen, stage), adapts = Has(untrained.adapters, stage);
    if (frozen && adapts) {
      return InvalidParameter("adapters",
                              "{}: a stage with adapters is not frozen, but stage {} is",
                              StagesText(untrained.adapters), stage);
    }
    trains_before = trains_before || !frozen;
    backwards.push_back(!frozen         ? adapts ? StageBackward::kAdapters : StageBackward::kWhole
                        : trains_before ? StageBackward::kInput
                                        : StageBackward::kNone);
  }
  return backwards;
}

Untrained UntrainedOf(const Schedule& schedule) {
  Untrained untrained;
  for (std::size_t stage = 0; stage < schedule.backward.size(); ++stage) {
    const StageBackward backward = schedule.backward[stage];
    if (backward == StageBackward::kWhole) continue;
    std::vector<int>& list =
        backward == StageBackward::kAdapters ? untrained.adapters : untrained.frozen;
    list.push_back(static_cast<int>(stage));
  }
  return untrained;
}

bool Runs(StageBackward backward, Op op) {
  const bool whole = backward == StageBackward::kWhole, none = backward == StageBackward::kNone;
  switch (op) {
    case Op::kBackward:
    case Op::kBackwardWeight:
      return whole;
    case Op::kBackwardInput:
    case Op::kRecvBackward:
    case Op::kSendBackward:
    case Op::kWaitSendBackward:
    case Op::kOffload:
    case Op::kReload:
    case Op::kRecompute:
      return !none;
    case Op::kReduceGrad:
    case Op::kWaitReduceGrad:
    case Op::kStep:
      return whole || backward == StageBackward::kAdapters;
    default:
      return true;
  }
}

Result<Schedule> WithoutBackward(const Schedule& schedule, const Untrained& untrained) {
  if (untrained.empty()) return schedule;
  if (schedule.vocabulary) {
    return InvalidArgument(
        "the ranks share the vocabulary, which they train: give either no frozen stages and no "
        "adapters, or a vocabulary that is not sharded");
  }
  Schedule result = schedule;
  PENSTOCK_TRY(result.backward, BackwardsOf(untrained, schedule.placement.chain_length()));
  PENSTOCK_TRY_STATUS(KeepShared(result));
  for (Lane& lane : result.lanes) lane = LaneWithout(result).Of(lane);
  return result;
}

bool IsUntrained(const Schedule& schedule) { return !schedule.backward.empty(); }

Costs CostsWithoutBackward(const Schedule& schedule, Costs costs) {
  if (!IsUntrained(schedule) || costs.stages.empty()) return costs;
  const std::size_t slices = costs.by_slice.size() / costs.stages.size();
  for (std::size_t stage = 0; stage < costs.stages.size(); ++stage) {
    const StageBackward backward = schedule.backward_of(static_cast<int>(stage));
    RemoveCosts(backward, costs.stages[stage]);
    for (std::size_t i = 0; i < slices; ++i)
      RemoveCosts(backward, costs.by_slice[stage * slices + i]);
  }
  return costs;
}

}  // namespace penstock
