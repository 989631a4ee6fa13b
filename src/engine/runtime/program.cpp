#include "runtime/program.h"

#include <algorithm>

#include "schedule/text/text.h"

namespace penstock {
namespace {

bool HasStepCell(const Schedule& schedule) {
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      if (action.first.op == Op::kStep) return true;
    }
  }
  return false;
}

Status CheckSchedule(const Schedule& schedule, int rank) {
  if (rank < 0 || rank >= schedule.ranks() ||
      static_cast<int>(schedule.lanes.size()) != schedule.ranks()) {
    return InvalidArgument("rank {}: the schedule has {} ranks and {} lanes", rank,
                           schedule.ranks(), schedule.lanes.size());
  }
  return {};
}

Status CheckPart(const Schedule& schedule, int rank, const ProgramEntry& entry) {
  const Part& part = entry.part;
  if (part.stage >= schedule.stages() || schedule.placement.rank_of(part.stage) != rank) {
    return InvalidArgument("rank {}, action {} ({}): stage {} is not on this rank", rank,
                           entry.position, ToText(part), part.stage);
  }
  if (HasMicrobatch(part.op) && (part.microbatch < 0 || part.microbatch >= schedule.indices())) {
    return InvalidArgument("rank {}, action {} ({}): microbatches are 0 to {}", rank,
                           entry.position, ToText(part), schedule.indices() - 1);
  }
  return {};
}

// Without W, I is all of the backward: the stage runs it as one.
Part AsRun(const Schedule& schedule, Part part) {
  if (part.op != Op::kBackwardInput || part.stage >= schedule.stages()) return part;
  if (schedule.backward_of(part.stage) != StageBackward::kWhole) part.op = Op::kBackward;
  return part;
}

}  // namespace

Result<Program> MakeProgram(const Schedule& schedule, int rank) {
  PENSTOCK_TRY_STATUS(CheckSchedule(schedule, rank));
  const Lane& lane = schedule.lanes[rank];
  Program program;
  program.reserve(lane.size() + schedule.placement.stages_of(rank).size());
  for (std::size_t i = 0; i < lane.size(); ++i) {
    if (IsCommunication(lane[i].first.op) || IsWait(lane[i].first.op)) continue;
    const int position = static_cast<int>(i);
    program.push_back({AsRun(schedule, lane[i].first), position});
    if (!lane[i].is_pair()) continue;
    program.push_back({AsRun(schedule, lane[i].second), position, /*ends_pair=*/true});
  }
  for (const ProgramEntry& entry : program) {
    PENSTOCK_TRY_STATUS(CheckPart(schedule, rank, entry));
  }
  const bool has_steps = HasStepCell(schedule);
  for (const int stage : schedule.placement.stages_of(rank)) {
    if (has_steps && HasGradients(schedule.backward_of(stage))) continue;
    program.push_back({MakeAction(Op::kStep, stage).first, -1});
  }
  return program;
}

namespace {

// Every ordered pair of stages that share a parameter, in every chain.
template <class Add>
void ForEachSharedPair(const Schedule& schedule, Add add) {
  const Placement& placement = schedule.placement;
  for (int parameter = 0; parameter < std::ssize(schedule.shared); ++parameter) {
    const std::vector<int>& stages = schedule.shared[parameter];
    for (int chain = 0; chain < placement.replicas(); ++chain) {
      const int first = chain * placement.chain_length();
      for (const int from : stages) {
        for (const int to : stages) {
          if (from != to) add(parameter, first + from, first + to);
        }
      }
    }
  }
}

}  // namespace

MessageMap::MessageMap(const Schedule& schedule)
    : schedule_(&schedule),
      stages_(schedule.stages()),
      microbatches_(schedule.indices()),
      first_gradient_(2 * stages_ * microbatches_),
      first_shared_(first_gradient_ + 2 * stages_ * (schedule.placement.replicas() - 1)),
      first_vocabulary_(first_shared_),
      first_norm_(first_shared_) {
  ForEachSharedPair(schedule, [&](int parameter, int from, int to) {
    shared_.push_back({parameter, from, to});
    ++first_vocabulary_;
  });
  // By value and pair of ranks, then by microbatch: the softmax goes from every rank to every rank,
  // and the others to or from a single one.
  const int pairs = schedule.vocabulary ? ranks() * (ranks() + 3) : 0;
  first_norm_ = first_vocabulary_ + pairs * microbatches_;
}

int MessageMap::VocabularySlot(VocabularyValue value, int from, int to, int microbatch) const {
  const int p = ranks();
  int pair = 0;
  switch (value) {
    case VocabularyValue::kEmbedding:
      pair = from;
      break;
    case VocabularyValue::kHidden:
      pair = p + to;
      break;
    case VocabularyValue::kGradient:
      pair = 2 * p + to;
      break;
    case VocabularyValue::kSoftmax:
      pair = (3 + from) * p + to;
      break;
  }
  return first_vocabulary_ + pair * microbatches_ + microbatch;
}

MessageMap::VocabularyMessage MessageMap::VocabularyOf(int slot) const {
  const int p = ranks();
  const int pair = (slot - first_vocabulary_) / microbatches_;
  const int microbatch = (slot - first_vocabulary_) % microbatches_;
  const int rank = pair % p;
  switch (pair / p) {
    case 0:
      return {VocabularyValue::kEmbedding, rank, first_rank(), microbatch};
    case 1:
      return {VocabularyValue::kHidden, root(), rank, microbatch};
    case 2:
      return {VocabularyValue::kGradient, first_rank(), rank, microbatch};
    default:
      return {VocabularyValue::kSoftmax, pair / p - 3, rank, microbatch};
  }
}

int MessageMap::SharedSlot(int parameter, int from_stage, int to_stage) const {
  const auto found =
      std::find_if(shared_.begin(), shared_.end(), [&](const SharedMessage& message) {
        return message.parameter == parameter && message.from == from_stage &&
               message.to == to_stage;
      });
  return found == shared_.end() ? -1 : first_shared_ + static_cast<int>(found - shared_.begin());
}

const MessageMap::SharedMessage* MessageMap::SharedOf(int slot) const {
  if (slot < first_shared_ || slot >= first_vocabulary_) return nullptr;
  return &shared_[slot - first_shared_];
}

int MessageMap::Receiver(const Value& value) const {
  return ReaderOf(*schedule_, value.kind, value.stage);
}

int MessageMap::Slot(const Value& value) const {
  if (Receiver(value) < 0) return -1;
  const int kind = value.kind == ValueKind::kActivation ? 0 : 1;
  return (kind * stages_ + value.stage) * microbatches_ + value.microbatch;
}

int MessageMap::InSlot(const Part& part) const {
  int slot = -1;
  ForEachDependency(ChainShape::Of(*schedule_), part, [&](const Value& value) {
    if (value.stage != part.stage) slot = Slot(value);
  });
  return slot;
}

int MessageMap::OutSlot(const Part& part) const {
  if (part.op != Op::kForward && !MakesInputGradient(part.op)) return -1;
  return Slot({MadeBy(part.op), part.stage, part.microbatch});
}

Value MessageMap::ValueOf(int slot) const {
  const int microbatch = slot % microbatches_;
  const int edge = slot / microbatches_;
  return {edge < stages_ ? ValueKind::kActivation : ValueKind::kGradient, edge % stages_,
          microbatch};
}

// A stage has one slot for each other chain, in the order of the chains.
int MessageMap::GradientSlot(int stage, int to_chain) const {
  const int chain = stage / schedule_->placement.chain_length();
  if (to_chain == chain) return -1;
  const int others = schedule_->placement.replicas() - 1;
  return first_gradient_ + stage * others + (to_chain < chain ? to_chain : to_chain - 1);
}

int MessageMap::ShardSlot(int stage, int to_chain) const {
  const int slot = GradientSlot(stage, to_chain);
  return slot < 0 ? -1 : slot + stages_ * (schedule_->placement.replicas() - 1);
}

MessageMap::ReplicaMessage MessageMap::ReplicaMessageOf(int slot) const {
  const int others = schedule_->placement.replicas() - 1;
  const int index = slot - first_gradient_;
  const int stage = index / others % stages_;
  const int chain = stage / schedule_->placement.chain_length();
  const int other = index % others;
  return {stage, other < chain ? other : other + 1, index < stages_ * others};
}

int MessageMap::from_rank(int slot) const {
  const Placement& placement = schedule_->placement;
  if (slot < first_gradient_) return placement.rank_of(ValueOf(slot).stage);
  if (const SharedMessage* shared = SharedOf(slot)) return placement.rank_of(shared->from);
  if (IsVocabularySlot(slot)) return VocabularyOf(slot).from;
  if (slot < first_norm_) return placement.rank_of(ReplicaMessageOf(slot).stage);
  return slot < VerdictSlot(0) ? slot - first_norm_ : root();
}

int MessageMap::to_rank(int slot) const {
  const Placement& placement = schedule_->placement;
  if (slot < first_gradient_) {
    const int stage = Receiver(ValueOf(slot));
    return stage < 0 ? -1 : placement.rank_of(stage);
  }
  if (const SharedMessage* shared = SharedOf(slot)) return placement.rank_of(shared->to);
  if (IsVocabularySlot(slot)) return VocabularyOf(slot).to;
  if (slot < first_norm_) {
    const ReplicaMessage message = ReplicaMessageOf(slot);
    return placement.rank_of(message.to_chain * placement.chain_length() +
                             placement.model_stage(message.stage));
  }
  return slot < VerdictSlot(0) ? root() : slot - VerdictSlot(0);
}

std::string MessageMap::Describe(int slot) const {
  if (slot >= VerdictSlot(0)) return fmt::format("norm of all gradients, from rank {}", root());
  if (slot >= first_norm_) return fmt::format("norm of the gradients of rank {}", from_rank(slot));
  if (const SharedMessage* shared = SharedOf(slot)) {
    return fmt::format("gradient of a parameter shared with stage {}, from rank {}", shared->from,
                       from_rank(slot));
  }
  if (IsVocabularySlot(slot)) {
    constexpr const char* kTexts[] = {"embedding", "last stage's output", "softmax",
                                      "gradient of the embedding"};
    const VocabularyMessage message = VocabularyOf(slot);
    return fmt::format("{} of microbatch {}, from rank {}", kTexts[static_cast<int>(message.value)],
                       message.microbatch, message.from);
  }
  if (slot >= first_gradient_) {
    const ReplicaMessage message = ReplicaMessageOf(slot);
    return fmt::format("{} of stage {}, from rank {}",
                       message.has_gradients ? "gradients" : "updated parameters", message.stage,
                       from_rank(slot));
  }
  const Value value = ValueOf(slot);
  return fmt::format("{} of stage {}, microbatch {}, from rank {}",
                     value.kind == ValueKind::kActivation ? "activation" : "input gradient",
                     value.stage, value.microbatch, from_rank(slot));
}

}  // namespace penstock
