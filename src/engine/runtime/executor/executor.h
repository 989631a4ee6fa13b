// Executor: runs one rank's program. Bind first, then run.
//
// Binding turns the rank's lane into a flat list of calls, each with its stage, its microbatch and
// the slots of its messages. The loop over the list only calls: it does no lookups, allocates
// nothing, and does not know schedule algorithms.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/executor/run.h"
#include "runtime/executor/vocabulary_exchange.h"
#include "runtime/measure/trace.h"
#include "runtime/program.h"
#include "runtime/stage.h"
#include "runtime/transport.h"
#include "runtime/update/update_exchange.h"
#include "runtime/update/update_points.h"

namespace penstock {

// What all executors of a run are bound to. All of it must outlive them.
struct Binding {
  const Schedule& schedule;        // valid, compute-only or lowered
  std::span<Stage* const> stages;  // by stage number; other ranks' may be null
  Transport& transport;
  Trace& trace;  // of the same schedule
  const RunOptions& options;
};

class Executor {
 public:
  // For a schedule of several steps, `on_step` is called with the number of each step after the
  // rank's stages have made all updates of it. `binding` must outlive the executor. Errors:
  // kInvalidArgument as MakeProgram, and if a stage of the rank is missing or does not support an
  // op or the weight policy.
  static Result<std::unique_ptr<Executor>> Bind(const Binding& binding, int rank,
                                                std::function<void(std::int64_t step)> on_step);

  // Runs the program once. `round` counts from 0 in this run; `step` is the step number for the
  // stages (the first one if the schedule has several steps). Returns false if the transport was
  // aborted, before or during the call. Throws what a stage throws.
  // Threads: always the same one.
  [[nodiscard]] bool RunStep(std::int64_t round, std::int64_t step);
  // Called after the last step: waits for the verdict on it if steps are made early. As RunStep.
  [[nodiscard]] bool Finish(std::int64_t rounds, std::int64_t step);

  // Increases whenever an action starts to wait, starts to run or ends. Any thread.
  std::uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  // Describes what the rank is doing, in one phrase: "waits at 1B2 for ...", "runs 1B2". Any
  // thread.
  std::string Doing() const;
  bool computing() const { return (progress() & 1) != 0; }
  // Returns the current action, for example "1B2"; empty between steps.
  std::string CurrentAction() const;

 private:
  // The outlet of a stage for one slot.
  class SlotOutlet final : public Outlet {
   public:
    explicit SlotOutlet(Transport& transport) : transport_(transport) {}
    void Send(Message message) override;
    // `timed`: whether sent_ns() is set, or on a device, the mark.
    void Open(int slot, std::int64_t round, bool timed, StageClock* clock, std::size_t mark) {
      clock_ = clock;
      mark_ = mark;
      slot_ = slot;
      expected_ = slot >= 0;
      round_ = round;
      timed_ = timed;
      sent_ns_ = 0;
      exchange_ = nullptr;
    }
    // Then hands the message of this entry over to the exchange.
    void OpenTo(VocabularyExchange& exchange, std::size_t entry) {
      exchange_ = &exchange;
      entry_ = entry;
    }
    bool sent() const { return slot_ < 0 && exchange_ == nullptr; }
    std::int64_t sent_ns() const { return sent_ns_; }

   private:
    void SetSent();

    Transport& transport_;
    StageClock* clock_ = nullptr;
    std::size_t mark_ = 0;
    int slot_ = -1;  // where to send the message; -1 after it is sent, or if it has no receiver
    bool expected_ = false;
    bool timed_ = false;
    std::int64_t round_ = 0;
    std::int64_t sent_ns_ = 0;
    VocabularyExchange* exchange_ = nullptr;
    std::size_t entry_ = 0;
  };

  struct BoundPart {
    StageMethod call;
    Stage* stage;
    Op op;
    int microbatch;
    int in_slot;   // -1 for none
    int out_slot;  // -1 for none
    bool drops;    // what F keeps, because the stage has no backward
    // Whether the message is sent again when early forwards run again.
    bool in_again = false, out_again = false;
  };
  struct BoundAction {
    std::size_t entry;  // of its first part
    std::size_t parts;  // 2 for a pair
  };

  // The value of progress(): 2 * index of the current entry + (1 while it runs), with the round in
  // the upper bits. A pair waits at each of its entries and runs at its second.
  static constexpr int kIndexBits = 40;
  static std::uint64_t Progress(std::int64_t round, std::size_t index, bool computing);
  static std::size_t IndexOf(std::uint64_t progress);

  // An exchange before an action.
  struct BoundPoint {
    std::size_t action;
    UpdatePoint point;
  };
  // The end of one of several steps, before an action.
  struct BoundStep {
    std::size_t action;
    int step;
  };

  Executor(const Binding& binding, int rank, std::function<void(std::int64_t step)> on_step,
           Program program);
  const UpdateRule& rule() const { return binding_.options.update; }
  StageMethod StageMethodOf(Op op) const;
  Status BindStages();
  Status BindActions();
  bool Drops(const Part& part) const;
  Status BindVocabulary();
  Status BindUpdates();
  void BindSteps();
  void EndStep();
  // On a device, marks the point in place of reading the time.
  enum class Moment { kStart, kEnd, kSent };
  static std::size_t MarkOf(std::size_t entry, Moment moment) {
    return 3 * entry + static_cast<std::size_t>(moment);
  }
  void SetTime(std::size_t entry, Moment moment, std::int64_t& ns);
  // Ends the step of the stages. On a device, also reads the times of the actions so far.
  void EndStepWithTimes();
  Status BindCheckPoint();
  std::size_t ActionAt(std::size_t entry) const;  // the first action at or after the entry
  [[nodiscard]] bool RunActions(std::size_t begin, std::size_t end, std::int64_t round);
  [[nodiscard]] bool AtPoint(const UpdatePoint& point, std::int64_t round, std::int64_t step);
  [[nodiscard]] bool Agree(std::int64_t round, std::int64_t step, Verdict& verdict);
  // Sends and takes the parameters of a repeated step.
  [[nodiscard]] bool ShareShardsAgain(std::int64_t round);
  // Waits for the parameters that the replicas of the rank's stages updated in the last step.
  [[nodiscard]] bool TakeShards(std::int64_t round);
  // Applies the verdict on the previous step, and rolls that step back if necessary; `amended` says
  // whether it did.
  [[nodiscard]] bool SettleLastStep(std::int64_t round, std::int64_t step, bool& amended);
  [[nodiscard]] bool RunEarlyForwards(std::int64_t round, std::int64_t step);
  // Waits for the inputs of the action and opens its outlets. Returns false if the transport was
  // aborted.
  [[nodiscard]] bool Enter(const BoundAction& action, std::int64_t round,
                           std::array<Message, 2>& inputs);
  void RunOne(std::size_t entry, Message input, std::int64_t round);
  void RunPair(const BoundPart* parts, std::array<Message, 2>& inputs, Stamp* stamps);
  std::string TextOf(const ProgramEntry& entry) const;

  const Binding& binding_;
  int rank_;
  std::function<void(std::int64_t step)> on_step_;
  Program program_;
  MessageMap messages_;
  std::vector<Stage*> stages_;    // of this rank
  std::vector<BoundPart> parts_;  // by entry of the program
  std::vector<BoundAction> actions_;
  std::array<SlotOutlet, 2> outlets_;  // by part of the current action
  Stamp* stamps_ = nullptr;            // of the current step
  StageClock* clock_ = nullptr;        // of the stages' device; null on CPUs

  std::unique_ptr<VocabularyExchange> vocabulary_;  // null unless the vocabulary is sharded
  std::unique_ptr<UpdateExchange> exchange_;        // null if nothing is exchanged
  std::vector<BoundPoint> points_;
  std::vector<BoundStep> steps_;   // empty if the schedule has one step
  std::size_t early_actions_ = 0;  // forwards that run before the last step's verdict
  std::vector<int> early_unread_;  // slots that other ranks' early forwards send, read later here
  std::int64_t times_again_ = 0;   // how often early forwards were run again
  alignas(64) std::atomic<std::uint64_t> progress_{0};
  std::atomic<bool> stage_waits_{false};  // in Stage::Await
};

}  // namespace penstock
