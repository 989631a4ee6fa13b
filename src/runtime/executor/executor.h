// Executor: runs one rank's program. Bind, then run.
//
// Binding turns the rank's lane into a flat list of calls, each with its stage, its row and the
// slots of its messages. The loop over it only calls: it looks nothing up, allocates nothing, and
// knows no schedule algorithm.
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
#include "runtime/measure/trace.h"
#include "runtime/program.h"
#include "runtime/stage.h"
#include "runtime/transport.h"
#include "runtime/update/update_exchange.h"
#include "runtime/update/update_points.h"

namespace penstock {

// What an executor binds. All of it must outlive the executor.
struct Binding {
  const Schedule* schedule = nullptr;  // valid, compute-only or lowered
  int rank = 0;
  std::span<Stage* const> stages;  // by stage number; those of other ranks may be null
  Transport* transport = nullptr;
  Trace* trace = nullptr;  // of the same schedule
  UpdateRule update = {};
  // Of a schedule of several steps: called when the rank's stages have made all updates of one,
  // with the step's number. Empty: nobody asks.
  std::function<void(std::int64_t step)> on_step = {};
  // What became of a step's update, called on the rank of the last stage. Empty: nobody asks.
  std::function<void(std::int64_t step, const Verdict& verdict)> on_verdict = {};
};

class Executor {
 public:
  // Errors: kInvalidArgument as MakeProgram, and where a stage of the rank is missing or has not
  // what an op or the weight policy asks for.
  static Result<std::unique_ptr<Executor>> Bind(const Binding& binding);

  // Runs the program once. `round` counts from 0 in this run; `step` is what stages are told, the
  // first one's number where the schedule holds several.
  // False if the transport was aborted, before or meanwhile. Throws what a stage throws.
  // Threads: always the same one.
  [[nodiscard]] bool RunStep(std::int64_t round, std::int64_t step);
  // Behind the last step: waits for the verdict on it where steps are made early. As RunStep.
  [[nodiscard]] bool Finish(std::int64_t rounds, std::int64_t step);

  // Grows with every action that starts to wait, to run or has ended. Any thread.
  std::uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  // What the rank does now, as one phrase: "waits at 1B2 for ...", "runs 1B2". Any thread.
  std::string Doing() const;
  bool computing() const { return (progress() & 1) != 0; }
  // The action at hand, "1B2"; empty between steps.
  std::string CurrentAction() const;

 private:
  // What a stage sends its output through.
  class SlotOutlet final : public Outlet {
   public:
    explicit SlotOutlet(Transport& transport) : transport_(transport) {}
    void Send(Message message) override;
    void Open(int slot, std::int64_t round) {
      slot_ = slot;
      expected_ = slot >= 0;
      round_ = round;
    }
    bool sent() const { return slot_ < 0; }

   private:
    Transport& transport_;
    int slot_ = -1;  // where the message goes; -1 once it is gone, or where nobody wants it
    bool expected_ = false;
    std::int64_t round_ = 0;
  };

  using Call = void (*)(Stage& stage, int row, Message input, Outlet& output);
  struct BoundPart {
    Call call;
    Stage* stage;
    Op op;
    int row;
    int in_slot;   // -1 for none
    int out_slot;  // -1 for none
    // Whether the message is sent again where early forwards are run again.
    bool in_again = false, out_again = false;
  };
  struct BoundAction {
    std::size_t entry;  // of its first part
    std::size_t parts;  // 2 for a pair
  };

  // What progress() says: 2 * index of the entry at hand + (1 while it runs), and the round above.
  // A pair waits at each of its entries and runs at its second.
  static constexpr int kIndexBits = 40;
  static std::uint64_t Progress(std::int64_t round, std::size_t index, bool computing);
  static std::size_t IndexOf(std::uint64_t progress);

  // An exchange before an action.
  struct BoundPoint {
    std::size_t action;
    UpdatePoint point;
  };
  // A step of several is made before an action.
  struct BoundStep {
    std::size_t action;
    int step;
  };

  Executor(const Binding& binding, Program program);
  Call CallOf(Op op) const;
  Status BindStages();
  Status BindActions();
  Status BindUpdates();
  void BindSteps();
  Status BindCheckPoint();
  std::size_t ActionAt(std::size_t entry) const;  // the first that begins there or behind
  [[nodiscard]] bool RunActions(std::size_t begin, std::size_t end, std::int64_t round);
  [[nodiscard]] bool AtPoint(const UpdatePoint& point, std::int64_t round, std::int64_t step);
  [[nodiscard]] bool Agree(std::int64_t round, std::int64_t step, Verdict& verdict);
  // The verdict on the step before; takes it back where need be. `amended` tells.
  [[nodiscard]] bool SettleLastStep(std::int64_t round, std::int64_t step, bool& amended);
  [[nodiscard]] bool RunEarlyForwards(std::int64_t round, std::int64_t step);
  // Waits for what the action needs and opens its outlets. False if the transport was aborted.
  [[nodiscard]] bool Enter(const BoundAction& action, std::int64_t round,
                           std::array<Message, 2>& inputs);
  void RunOne(const BoundPart& part, Message input, Stamp& stamp);
  void RunPair(const BoundPart* parts, std::array<Message, 2>& inputs, Stamp* stamps);
  std::string TextOf(const ProgramEntry& entry) const;

  Binding binding_;
  Program program_;
  MessageMap messages_;
  std::vector<Stage*> stages_;    // of this rank
  std::vector<BoundPart> parts_;  // by entry of the program
  std::vector<BoundAction> actions_;
  std::array<SlotOutlet, 2> outlets_;  // by part of the action at hand
  Stamp* stamps_ = nullptr;            // of the step at hand

  std::unique_ptr<UpdateExchange> exchange_;  // null where nothing is exchanged
  std::vector<BoundPoint> points_;
  std::vector<BoundStep> steps_;   // empty where the schedule holds one step
  std::size_t early_actions_ = 0;  // forwards that run before the last step's verdict
  std::vector<int> early_unread_;  // slots that others' early forwards send, read later here
  std::int64_t times_again_ = 0;   // that early forwards were run again
  alignas(64) std::atomic<std::uint64_t> progress_{0};
  std::atomic<bool> stage_waits_{false};  // in Stage::Await
};

}  // namespace penstock
