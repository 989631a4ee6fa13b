// One walk of every lane in dependency order proves order, placement, transfers and freedom from
// deadlock at once. One scan of the (stage, microbatch) table then proves that nothing is missing.
#include "schedule/validate/validate.h"

#include <algorithm>

#include "base/index.h"
#include "base/system/prefetch.h"
#include "schedule/stage_edges.h"
#include "schedule/text/text.h"
#include "schedule/untrained.h"
#include "schedule/validate/missing.h"
#include "schedule/validate/state.h"
#include "schedule/validate/vocabulary_passes.h"

namespace penstock {
namespace validation {
namespace {

// Ops of the same (stage, microbatch) that must not have run: the op itself, and ops that compute
// the same gradient.
constexpr std::uint8_t Excludes(Op op) {
  switch (op) {
    case Op::kBackwardInput:
      return kInputGradientBits;
    case Op::kBackwardWeight:
      return kEndBits;
    case Op::kBackward:
      return kInputGradientBits | kEndBits;
    default:
      return Bit(op);
  }
}

// Why a stage with such a backward does not run the op.
std::string_view LacksText(StageBackward backward, Op op) {
  if (backward == StageBackward::kNone) return "and all before it are frozen: it has only F";
  if (op == Op::kBackward) return "trains no weights of its own: its backward is I";
  return backward == StageBackward::kAdapters ? "trains only adapters, whose gradients I computes"
                                              : "is frozen: it has no gradients of its own";
}

class Validator {
 public:
  Validator(const Schedule& schedule, const Usage& usage, int max_faults)
      : schedule_(schedule),
        usage_(usage),
        shape_(ChainShape::Of(schedule)),
        indices_(Index(schedule.indices())),
        history_(indices_ * Index(schedule.stages())),
        edges_(EdgesOf(schedule)),
        position_(schedule.lanes.size()),
        waits_(schedule.lanes.size()),
        rare_(schedule, usage, indices_),
        vocabulary_(schedule, indices_),
        faults_(max_faults) {
    if (usage.communication) {
      remote_activation_bits_ = Bit(Op::kSendForward);
      remote_gradient_bits_ = Bit(Op::kSendBackward);
    }
  }

  std::vector<Fault> Run() {
    for (int rank = schedule_.ranks() - 1; rank >= 0; --rank) runnable_.push_back(rank);
    while (!runnable_.empty() && !faults_.full()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      Walk(rank);
    }
    std::vector<int> stuck;
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      if (position_[rank] < schedule_.lanes[rank].size()) stuck.push_back(rank);
    }
    if (!stuck.empty() && !faults_.full()) {
      // Check the rest of the lanes as if what they wait for had arrived. The history then has
      // everything that exists, which distinguishes a wait for a missing action from a cycle.
      const std::vector<std::size_t> positions = position_;
      const std::vector<Wait> waits = waits_;
      patient_ = false;
      for (const int rank : stuck) Walk(rank);
      ReportDeadlocks(stuck, positions, waits);
    }
    if (!faults_.full()) {
      FindMissing({schedule_, usage_, edges_, history_, rare_, vocabulary_}, faults_);
    }
    return faults_.Take();
  }

 private:
  // What a blocked rank waits for: a bit in the history of a (stage, microbatch), or, without bits,
  // the stage's gradients of an update.
  struct Wait {
    int stage = -1;
    int microbatch = -1;  // or update
    std::uint16_t bits = 0;
  };

  std::uint8_t& History(int stage, int microbatch) {
    return history_[Index(stage) * indices_ + Index(microbatch)];
  }

  // Formats here rather than in the caller, to keep the hot path small.
  template <class... Args>
  [[gnu::cold, gnu::noinline]] void AddFault(int rank, std::size_t position,
                                             fmt::format_string<const Args&...> format,
                                             const Args&... args) {
    const Action& action = schedule_.lanes[rank][position];
    faults_.Add({rank, static_cast<int>(position), ToText(action), fmt::format(format, args...)});
  }

  // Runs the rank until it ends, has to wait, or there are too many faults.
  void Walk(int rank) {
    const Lane& lane = schedule_.lanes[rank];
    std::size_t& position = position_[rank];
    // With many ranks each walk is short, and no hardware prefetcher follows that many streams.
    constexpr std::size_t kReadAhead = 8;  // actions
    PrefetchRead(lane.data(), position + kReadAhead);
    for (; position < lane.size() && !faults_.full(); ++position) {
      const Action& action = lane[position];
      if (action.is_pair()) {
        if (!StepPair(rank, position, action)) return;
        continue;
      }
      if (!WellFormed(rank, position, action.first)) continue;
      const Inputs inputs = action.first.op != Op::kStep ? Look(rank, action.first)
                                                         : LookAtReplicas(rank, action.first);
      if (inputs.blocked && patient_) return;
      if (CheckPart(rank, position, action.first, inputs)) Mark(action.first);
    }
  }

  // Returns false if the rank must wait. Both parts start together: neither can read the other's
  // output.
  bool StepPair(int rank, std::size_t position, const Action& action) {
    if (!IsCompute(action.first.op) || !IsCompute(action.second.op) ||
        (action.first.op == Op::kForward) == (action.second.op == Op::kForward)) {
      AddFault(rank, position, "an overlapped pair must be one forward and one backward");
      return true;
    }
    if (!WellFormed(rank, position, action.first)) return true;
    if (!WellFormed(rank, position, action.second)) return true;
    const Inputs first_inputs = Look(rank, action.first);
    if (first_inputs.blocked && patient_) return false;
    const Inputs second_inputs = Look(rank, action.second);
    if (second_inputs.blocked && patient_) return false;
    const bool first_runs = CheckPart(rank, position, action.first, first_inputs);
    const bool second_runs = CheckPart(rank, position, action.second, second_inputs);
    if (first_runs) Mark(action.first);
    if (second_runs) Mark(action.second);
    return true;
  }

  bool WellFormed(int rank, std::size_t position, const Part& part) {
    if (part.op < Op::kNone && part.stage < edges_.size() && edges_[part.stage].rank == rank &&
        (HasMicrobatch(part.op) ? static_cast<std::uint32_t>(part.microbatch) < indices_
                                : part.microbatch == -1) &&
        (trains_all_ || Runs(schedule_.backward_of(part.stage), part.op)) &&
        (!IsVocabulary(part.op) || part.stage == vocabulary_.StageOf(rank))) [[likely]] {
      return true;
    }
    ReportMalformed(rank, position, part);
    return false;
  }

  [[gnu::cold]] void ReportMalformed(int rank, std::size_t position, const Part& part) {
    if (part.op >= Op::kNone) {
      AddFault(rank, position, "the action is unknown");
    } else if (part.stage >= edges_.size()) {
      AddFault(rank, position, "the schedule has only {} stages", edges_.size());
    } else if (!HasMicrobatch(part.op) && part.microbatch != -1) {
      AddFault(rank, position, "this action takes no microbatch");
    } else if (HasMicrobatch(part.op) && static_cast<std::uint32_t>(part.microbatch) >= indices_) {
      AddFault(rank, position, "a chain has only {} microbatch indices", indices_);
    } else if (edges_[part.stage].rank != rank) {
      AddFault(rank, position, "stage {} is on rank {}", part.stage, edges_[part.stage].rank);
    } else if (!Runs(schedule_.backward_of(part.stage), part.op)) {
      AddFault(rank, position, "stage {} {}", part.stage,
               LacksText(schedule_.backward_of(part.stage), part.op));
    } else {
      AddFault(rank, position,
               "passes of the vocabulary have the number of the rank's first stage, {}",
               vocabulary_.StageOf(rank));
    }
  }

  // The state of the values that a part waits for.
  struct Inputs {
    bool blocked = false;      // a value of another rank is not available yet
    bool own_missing = false;  // a value of the rank itself was not computed before
  };

  Inputs Look(int rank, const Part& part) {
    Inputs inputs;
    ForEachDependency(edges_[part.stage].neighbors, shape_.slices, part, [&](const Value& value) {
      const std::uint8_t history = History(value.stage, value.microbatch);
      const bool activation = value.kind == ValueKind::kActivation;
      if (edges_[value.stage].rank == rank) {
        if ((history & (activation ? kForwardBit : kInputGradientBits)) == 0) {
          inputs.own_missing = true;
        }
        return;
      }
      const std::uint8_t bits = activation ? remote_activation_bits_ : remote_gradient_bits_;
      if ((history & bits) != 0) return;
      waits_[rank] = {value.stage, value.microbatch, bits};
      inputs.blocked = true;
    });
    if (IsWaitSend(part.op)) LookForReceive(rank, part, inputs);
    if (schedule_.vocabulary) LookAtVocabulary(rank, part, inputs);
    return inputs;
  }

  // A WAIT_SEND waits until the rank that it sends to has posted the RECV.
  void LookForReceive(int rank, const Part& part, Inputs& inputs) {
    if (PeerOf(part) < 0) return;  // see CheckTransfer
    const Part receive = ReceiveOf(part);
    if ((History(receive.stage, receive.microbatch) & Bit(receive.op)) != 0) return;
    waits_[rank] = {receive.stage, receive.microbatch, Bit(receive.op)};
    inputs.blocked = true;
  }

  // Whether the next stage is at the other end of a communication action; else the previous one is.
  static bool IsWithNext(const Part& part) {
    return (MessageOf(part).kind == ValueKind::kActivation) != IsRecv(part.op);
  }
  // The rank at the other end; -1 if there is none.
  int PeerOf(const Part& part) const {
    const StageEdges& edges = edges_[part.stage];
    const bool gradient = MessageOf(part).kind == ValueKind::kGradient;
    if (IsWithNext(part)) return gradient ? edges.gradient_from : edges.next_rank;
    return gradient ? edges.gradient_to : edges.previous_rank;
  }

  // Looks at what the vocabulary's actions need and produce.
  void LookAtVocabulary(int rank, const Part& part, Inputs& inputs) {
    vocabulary_.ForEachNeed(part, [&](int stage, std::uint16_t bits) {
      const Wait wait = {stage, part.microbatch, bits};
      if (IsAvailable(wait)) return;
      if (edges_[stage].rank == rank) {
        inputs.own_missing = true;
      } else {
        waits_[rank] = wait;
        inputs.blocked = true;
      }
    });
  }

  // Replicas sum their gradients before any of them steps.
  Inputs LookAtReplicas(int rank, const Part& step) {
    Inputs inputs;
    const int update = rare_.NextUpdate(step.stage);
    ForEachReplica(step.stage, [&](int stage) {
      if (rare_.GradientsReady(stage, update)) return;
      if (edges_[stage].rank == rank) {
        inputs.own_missing = true;
      } else {
        waits_[rank] = {stage, update, 0};
        inputs.blocked = true;
      }
    });
    return inputs;
  }

  // Calls visit(stage) for the other replicas of a stage.
  template <class Visit>
  void ForEachReplica(int stage, Visit&& visit) const {
    const int length = shape_.chain_length;
    for (int other = stage % length; other < static_cast<int>(edges_.size()); other += length) {
      if (other != stage) visit(other);
    }
  }

  // Checks what the part's own rank must have run before. Returns whether the part counts as run.
  bool CheckPart(int rank, std::size_t position, const Part& part, const Inputs& inputs) {
    std::uint8_t history = 0;
    if (HasMicrobatch(part.op)) history = History(part.stage, part.microbatch);
    if (IsVocabulary(part.op) && vocabulary_.Ran(part)) {
      AddFault(rank, position, "it has already run");
      return false;
    }
    if ((history & Excludes(part.op)) != 0) [[unlikely]] {
      if ((history & Bit(part.op)) != 0) {
        AddFault(rank, position, "it has already run");
      } else {
        AddFault(rank, position, "its gradient is already computed: B is I and W in one");
      }
      return false;
    }
    if (inputs.own_missing) [[unlikely]] {
      ReportOwnInputs(rank, position, part);
    }
    if (usage_.communication) {
      if (IsCompute(part.op)) {
        CheckReceived(rank, position, part, history);
      } else if (IsCommunication(part.op)) {
        CheckTransfer(rank, position, part, history);
      }
    }
    if (usage_.rare) {
      const std::string reason = rare_.Check(part, history);
      if (!reason.empty()) {
        AddFault(rank, position, "{}", reason);
        return IsCompute(part.op);
      }
    }
    return true;
  }

  [[gnu::cold]] void ReportOwnInputs(int rank, std::size_t position, const Part& part) {
    if (part.op == Op::kStep) {
      AddFault(rank, position, "a replica of the stage on this rank lacks gradients");
      return;
    }
    ForEachDependency(shape_, part, [&](const Value& value) {
      if (edges_[value.stage].rank != rank) return;
      const bool activation = value.kind == ValueKind::kActivation;
      const Wait wait = {value.stage, value.microbatch,
                         activation ? kForwardBit : kInputGradientBits};
      if (IsAvailable(wait)) return;
      const std::string needs = part.op == Op::kBackwardWeight
                                    ? ToText(BackwardInput(value.stage, value.microbatch))
                                    : WaitText(wait);
      AddFault(rank, position, "it needs {} before it on this rank", needs);
    });
    if (!schedule_.vocabulary) return;
    vocabulary_.ForEachNeed(part, [&](int stage, std::uint16_t bits) {
      const Wait wait = {stage, part.microbatch, bits};
      if (edges_[stage].rank != rank || IsAvailable(wait)) return;
      AddFault(rank, position, "it needs {} before it on this rank", WaitText(wait));
    });
  }

  void CheckReceived(int rank, std::size_t position, const Part& part, std::uint8_t history) {
    const StageEdges& edges = edges_[part.stage];
    const Op receive = part.op == Op::kForward       ? Op::kRecvForward
                       : MakesInputGradient(part.op) ? Op::kRecvBackward
                                                     : Op::kNone;
    if (receive == Op::kNone) return;
    const int from = receive == Op::kRecvForward ? edges.previous_rank : edges.gradient_from;
    if (from < 0 || (history & Bit(receive)) != 0) [[likely]]
      return;
    AddFault(rank, position, "its input comes from rank {}; add {}{}{} before it", from, part.stage,
             OpText(receive), part.microbatch);
  }

  void CheckTransfer(int rank, std::size_t position, const Part& part, std::uint8_t history) {
    if (PeerOf(part) < 0) [[unlikely]] {
      const bool is_near = edges_[part.stage].previous_rank < 0 || IsWithNext(part);
      AddFault(rank, position, "the {} stage of stage {} {}",
               IsWithNext(part) ? "next" : "previous", part.stage,
               is_near ? "is not on another rank" : "needs no gradient: it has no backward");
    }
    const bool not_computed = (part.op == Op::kSendForward && (history & kForwardBit) == 0) ||
                              (part.op == Op::kSendBackward && (history & kInputGradientBits) == 0);
    if (not_computed) [[unlikely]] {
      AddFault(rank, position, "what it sends is not computed yet");
    }
  }

  void Mark(const Part& part) {
    if (usage_.rare) {
      rare_.Note(part);
      if (patient_ && usage_.step) WakeReplicas(part);
    }
    if (IsVocabulary(part.op)) {
      vocabulary_.Note(part);
      WakeAll(part);
    }
    if (part.op > Op::kRecvBackward) return;
    const std::uint8_t bit = Bit(part.op);
    History(part.stage, part.microbatch) |= bit;
    if (vocabulary_.IsRead(part)) WakeAll(part);
    if (!patient_ || part.op == Op::kBackwardWeight) return;
    const int reader = ReaderOf(part);
    if (reader < 0) return;
    Wait& wait = waits_[reader];
    if (wait.stage == part.stage && wait.microbatch == part.microbatch && (wait.bits & bit) != 0) {
      wait = {};
      runnable_.push_back(reader);
      // Read as soon as the current rank has to wait.
      PrefetchRead(schedule_.lanes[reader].data(), position_[reader]);
    }
  }

  // The rank that may wait for the part: for its value, or, in a WAIT_SEND, for its RECV.
  int ReaderOf(const Part& part) const {
    const StageEdges& edges = edges_[part.stage];
    if (part.op == Op::kForward || part.op == Op::kSendForward) return edges.next_rank;
    if (part.op == Op::kRecvForward) return edges.previous_rank;
    return part.op == Op::kRecvBackward ? edges.gradient_from : edges.gradient_to;
  }

  // Wakes every rank that waits for what a part produces for passes of the vocabulary, or they for
  // it.
  void WakeAll(const Part& part) {
    if (!patient_) return;
    for (std::size_t rank = 0; rank < waits_.size(); ++rank) {
      Wait& wait = waits_[rank];
      if (wait.stage != part.stage || wait.microbatch != part.microbatch || wait.bits == 0 ||
          !IsAvailable(wait)) {
        continue;
      }
      wait = {};
      runnable_.push_back(static_cast<int>(rank));
    }
  }

  // Wakes the ranks whose STEP waits for the gradients of the part's stage.
  void WakeReplicas(const Part& part) {
    const bool adds = AddsGradients(schedule_.backward_of(part.stage), part.op);
    if (!adds && part.op != Op::kReduceGrad) return;
    ForEachReplica(part.stage, [&](int stage) {
      const int rank = edges_[stage].rank;
      Wait& wait = waits_[rank];
      if (wait.stage != part.stage || wait.bits != 0 || !IsAvailable(wait)) return;
      wait = {};
      runnable_.push_back(rank);
    });
  }

  bool IsAvailable(const Wait& wait) {
    if (wait.bits == 0) return rare_.GradientsReady(wait.stage, wait.microbatch);
    return (AllBits(wait) & wait.bits) != 0;
  }
  // The history of what is waited for, with the vocabulary's passes in the upper byte.
  unsigned AllBits(const Wait& wait) {
    return History(wait.stage, wait.microbatch) | vocabulary_.Bits(wait.stage, wait.microbatch);
  }

  // Describes what is waited for. If several ops would do, names the one that exists.
  std::string WaitText(const Wait& wait) {
    if (wait.bits == 0) return fmt::format("the gradients of stage {}", wait.stage);
    const unsigned existing = wait.bits & AllBits(wait);
    std::string text = VocabularyPasses::TextOf(wait.stage, wait.microbatch, wait.bits);
    for (const Op op : {Op::kForward, Op::kBackwardInput, Op::kBackward, Op::kSendForward,
                        Op::kSendBackward, Op::kRecvForward, Op::kRecvBackward}) {
      if (((existing != 0 ? existing : wait.bits) & Bit(op)) == 0) continue;
      text += fmt::format("{}{}{}{}", text.empty() ? "" : " or ", wait.stage, OpText(op),
                          wait.microbatch);
    }
    return text;
  }

  // Every stuck rank waits for one other rank. Follows these waits to the cycles, and reports each
  // cycle once.
  void ReportDeadlocks(const std::vector<int>& stuck, const std::vector<std::size_t>& positions,
                       const std::vector<Wait>& waits) {
    const auto holder = [&](int rank) { return edges_[waits[rank].stage].rank; };
    std::vector<int> visited_from(schedule_.lanes.size(), -1);
    for (const int start : stuck) {
      int rank = start;
      while (visited_from[rank] < 0) {
        visited_from[rank] = start;
        const Wait& wait = waits[rank];
        if (!IsAvailable(wait)) {
          AddFault(rank, positions[rank], "it waits for {} of rank {}, which never {}",
                   WaitText(wait), holder(rank), wait.bits == 0 ? "computes them all" : "runs it");
          break;
        }
        rank = holder(rank);
      }
      const Wait& wait = waits[rank];
      if (!IsAvailable(wait) || visited_from[rank] != start) continue;
      Fault fault = {rank, static_cast<int>(positions[rank]), "", "deadlock: "};
      for (int at = rank; fault.cycle.empty() || at != rank; at = holder(at)) {
        const Action& action = schedule_.lanes[at][positions[at]];
        if (fault.cycle.empty()) fault.action = ToText(action);
        fault.reason +=
            fmt::format("rank {} at {} waits for {}, ", at, ToText(action), WaitText(waits[at]));
        fault.cycle.push_back({at, static_cast<int>(positions[at])});
      }
      fault.reason += fmt::format("which comes later in rank {}", rank);
      faults_.Add(std::move(fault));
    }
  }

  const Schedule& schedule_;
  const Usage& usage_;
  const ChainShape shape_;
  const std::size_t indices_;
  std::vector<std::uint8_t> history_;  // by (stage, microbatch): Bits of the ops that ran
  std::vector<StageEdges> edges_;      // by stage
  std::vector<std::size_t> position_;  // by rank, in its lane
  std::vector<Wait> waits_;            // by rank
  std::vector<int> runnable_;
  RareOps rare_;
  VocabularyPasses vocabulary_;
  FaultList faults_;
  // The op that makes a value available to another rank: the one that computes it, or its SEND if
  // there are any.
  std::uint8_t remote_activation_bits_ = kForwardBit;
  std::uint8_t remote_gradient_bits_ = kInputGradientBits;
  const bool trains_all_ = !IsUntrained(schedule_);
  bool patient_ = true;  // wait for other ranks, rather than check only the order
};

Fault WholeFault(std::string reason) { return {-1, -1, "", std::move(reason)}; }

}  // namespace
}  // namespace validation

std::vector<Fault> Validate(const Schedule& schedule, const ValidateOptions& options) {
  const auto usage = validation::Usage::Of(schedule);
  if (std::string reason = validation::CheckShape(schedule, usage); !reason.empty()) {
    return {validation::WholeFault(std::move(reason))};
  }
  return validation::Validator(schedule, usage, options.max_faults).Run();
}

}  // namespace penstock
