#include "explain/inputs.h"

#include <algorithm>

#include "base/index.h"

namespace penstock {
namespace {

constexpr int kNowhere = -1;
constexpr double kNoMessage = -1;

bool GivesGradients(const Schedule& schedule, const Part& part) {
  return AddsGradients(schedule.backward_of(part.stage), part.op) || part.op == Op::kReduceGrad;
}

}  // namespace

ActionInputs::ActionInputs(const Schedule& schedule, const Timeline& timeline,
                           std::span<const SentMessage> messages)
    : schedule_(schedule),
      timeline_(timeline),
      shape_(ChainShape::Of(schedule)),
      ends_(VocabularyEnds::Of(schedule)),
      indices_(Index(schedule.indices())),
      computed_at_(2 * Index(schedule.stages()) * indices_, kNowhere),
      arrived_(computed_at_.size(), kNoMessage),
      shared_(schedule.vocabulary ? kSharedValues * indices_ : 0),
      unsharded_(schedule.lanes.size()),
      message_ends_(HasWaitSend(schedule) ? computed_at_.size() : 0) {
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const Lane& lane = schedule.lanes[Index(rank)];
    int before = kNowhere;
    for (std::size_t i = 0; i < lane.size(); ++i) {
      const ActionAt at{rank, static_cast<int>(i)};
      ForEachPart(lane[i], [&](const Part& part) { Note(at, part); });
      const Op op = lane[i].first.op;
      if (OccupiesRank(op) || (IsWait(op) && TimeOf(at).end > TimeOf(at).start)) {
        before = at.position;
      }
      if (message_ends_.empty() || !(IsSend(op) || IsRecv(op))) continue;
      const Value value = MessageOf(lane[i].first);
      MessageEnds& ends = message_ends_[Key(value.kind, value.stage, value.microbatch)];
      (IsSend(op) ? ends.sent_after : ends.posted_after) = before;
    }
    NoteUnshards(rank);
  }
  std::ranges::stable_sort(gradients_, {}, [&](const ActionAt& at) { return TimeOf(at).end; });
  for (const SentMessage& message : messages) {
    arrived_[Key(message.kind, message.stage, message.microbatch)] = message.arrived;
  }
}

void ActionInputs::Note(const ActionAt& at, const Part& part) {
  if (part.op == Op::kForward || MakesInputGradient(part.op)) {
    computed_at_[Key(MadeBy(part.op), part.stage, part.microbatch)] = at.position;
  }
  if (part.op == Op::kReload) {
    if (reloaded_at_.empty()) reloaded_at_.assign(Index(schedule_.stages()) * indices_, kNowhere);
    reloaded_at_[part.stage * indices_ + Index(part.microbatch)] = at.position;
  }
  if (GivesGradients(schedule_, part)) gradients_.push_back(at);
  if (part.op != Op::kEmbed && part.op != Op::kVocabularyInput) return;
  const auto value = part.op == Op::kEmbed ? SharedValue::kEmbedding : SharedValue::kSoftmax;
  ActionAt& last = shared_[Index(value) * indices_ + Index(part.microbatch)];
  if (!last.known() || TimeOf(at).end > TimeOf(last).end) last = at;
}

void ActionInputs::NoteUnshards(int rank) {
  const Lane& lane = schedule_.lanes[Index(rank)];
  const bool any = std::ranges::any_of(
      lane, [](const Action& action) { return action.first.op == Op::kUnshard; });
  if (!any) return;
  std::vector<int> last(Index(schedule_.stages()), kNowhere);  // by stage
  for (std::size_t i = 0; i < lane.size(); ++i) {
    const Part& part = lane[i].first;
    if (part.op == Op::kUnshard) last[part.stage] = static_cast<int>(i);
    const bool waits = IsCompute(part.op) || part.op == Op::kRecompute;
    unsharded_[Index(rank)].push_back(waits ? last[part.stage] : kNowhere);
  }
}

std::vector<ActionInput> ActionInputs::Of(const ActionAt& at) const {
  std::vector<ActionInput> inputs;
  const Action& action = ActionOf(at);
  ForEachPart(action, [&](const Part& part) { AddInputsOf(part, at, inputs); });
  if (action.first.op == Op::kStep) AddGradients(at, inputs);
  if (IsWaitSend(action.first.op)) AddMessage(at, inputs);
  if (action.first.op == Op::kWaitReduceGrad) AddReduction(at, inputs);
  if (OccupiesRank(action.first.op)) AddWaits(at, inputs);
  const std::vector<int>& unsharded = unsharded_[Index(at.rank)];
  if (!unsharded.empty() && unsharded[Index(at.position)] != kNowhere) {
    inputs.push_back(Local({at.rank, unsharded[Index(at.position)]}, at));
  }
  return inputs;
}

ActionInput ActionInputs::LastOf(const ActionAt& at) const {
  const std::vector<ActionInput> inputs = Of(at);
  if (inputs.empty()) return {};
  return *std::ranges::max_element(inputs, [](const ActionInput& a, const ActionInput& b) {
    return a.ready != b.ready ? a.ready < b.ready : a.computed < b.computed;
  });
}

void ActionInputs::AddInputsOf(const Part& part, const ActionAt& at,
                               std::vector<ActionInput>& inputs) const {
  const auto add = [&](const Value& value) { AddValue(value, at, inputs); };
  if (IsCompute(part.op)) ForEachDependency(shape_, part, add);
  if (schedule_.vocabulary) {
    ForEachVocabularyDependency(ends_, part, add, [&](SharedValue value) {
      const ActionAt& from = shared_[Index(value) * indices_ + Index(part.microbatch)];
      if (!from.known()) return;
      ActionInput input = Local(from, at);
      input.ready = TimeOf(at).start;
      input.sent = true;
      inputs.push_back(input);
    });
  }
  if (reloaded_at_.empty() || !HasMicrobatch(part.op) || part.op == Op::kReload) return;
  const int reloaded = reloaded_at_[part.stage * indices_ + Index(part.microbatch)];
  if (reloaded != kNowhere && reloaded < at.position) {
    inputs.push_back(Local({at.rank, reloaded}, at));
  }
}

void ActionInputs::AddValue(const Value& value, const ActionAt& reader,
                            std::vector<ActionInput>& inputs) const {
  const std::size_t key = Key(value.kind, value.stage, value.microbatch);
  const ActionAt from = SourceOf(value);
  if (from.position == kNowhere || from == reader) return;
  ActionInput input = Local(from, reader);
  if (from.rank != reader.rank) {
    const double start = TimeOf(reader).start;
    input.ready = arrived_[key] == kNoMessage ? start : std::min(arrived_[key], start);
    input.computed = std::min(input.computed, input.ready);
    input.sent = true;
  }
  inputs.push_back(input);
}

void ActionInputs::AddWaits(const ActionAt& at, std::vector<ActionInput>& inputs) const {
  const Lane& lane = schedule_.lanes[Index(at.rank)];
  for (int i = at.position - 1; i >= 0 && !OccupiesRank(lane[Index(i)].first.op); --i) {
    const ActionAt wait{at.rank, i};
    const bool waits = IsWait(lane[Index(i)].first.op);
    if (waits && TimeOf(wait).end > TimeOf(wait).start) inputs.push_back(Local(wait, at));
  }
}

void ActionInputs::AddReduction(const ActionAt& wait, std::vector<ActionInput>& inputs) const {
  const Lane& lane = schedule_.lanes[Index(wait.rank)];
  const Action reduction = MakeAction(Op::kReduceGrad, ActionOf(wait).first.stage);
  int i = wait.position - 1;
  while (i >= 0 && lane[Index(i)] != reduction) --i;
  if (i < 0) return;
  const double end = std::min(TimeOf({wait.rank, i}).end, TimeOf(wait).end);
  inputs.push_back({{wait.rank, i}, end, end, false});
}

void ActionInputs::AddMessage(const ActionAt& wait, std::vector<ActionInput>& inputs) const {
  const Value value = MessageOf(ActionOf(wait).first);
  const int reader = ReaderOf(schedule_, value.kind, value.stage);
  if (reader < 0) return;
  const std::size_t key = Key(value.kind, value.stage, value.microbatch);
  const ActionAt source = SourceOf(value);
  if (source.position != kNowhere) {
    ActionInput input = Local(source, wait);
    input.ready = arrived_[key] == kNoMessage ? input.ready : arrived_[key];
    input.sent = true;
    inputs.push_back(input);
  }
  const ActionAt before{schedule_.placement.rank_of(reader), message_ends_[key].posted_after};
  if (before.position == kNowhere) return;
  const double end = std::min(TimeOf(before).end, TimeOf(wait).end);
  inputs.push_back({before, end, end, false});
}

ActionAt ActionInputs::SourceOf(const Value& value) const {
  const std::size_t key = Key(value.kind, value.stage, value.microbatch);
  ActionAt source{schedule_.placement.rank_of(value.stage), computed_at_[key]};
  if (message_ends_.empty() || source.position == kNowhere) return source;
  source.position = std::max(source.position, message_ends_[key].sent_after);
  return source;
}

void ActionInputs::AddGradients(const ActionAt& step, std::vector<ActionInput>& inputs) const {
  const double start = TimeOf(step).start;
  const auto after = std::ranges::upper_bound(gradients_, start, {},
                                              [&](const ActionAt& at) { return TimeOf(at).end; });
  if (after != gradients_.begin()) inputs.push_back(Local(*std::prev(after), step));
}

ActionInput ActionInputs::Local(const ActionAt& from, const ActionAt& reader) const {
  const double end = std::min(TimeOf(from).end, TimeOf(reader).start);
  return {from, end, end, false};
}

const Action& ActionInputs::ActionOf(const ActionAt& at) const {
  return schedule_.lanes[Index(at.rank)][Index(at.position)];
}
const Span& ActionInputs::TimeOf(const ActionAt& at) const {
  return timeline_.spans[Index(at.rank)][Index(at.position)];
}

std::size_t ActionInputs::Key(ValueKind kind, int stage, int index) const {
  return 2 * (Index(stage) * indices_ + Index(index)) + Index(kind);
}

}  // namespace penstock
