// State of the validator while it walks the lanes. Private to validate/.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/index.h"
#include "schedule/deps.h"
#include "schedule/validate/validate.h"
#include "schedule/vocabulary.h"

namespace penstock::validation {

// One bit per op, so that the history of a (stage, microbatch) is one byte: F, I, W, B and the four
// transfers.
constexpr std::uint8_t Bit(Op op) { return static_cast<std::uint8_t>(1U << static_cast<int>(op)); }
inline constexpr std::uint8_t kForwardBit = Bit(Op::kForward);
inline constexpr std::uint8_t kInputGradientBits = Bit(Op::kBackwardInput) | Bit(Op::kBackward);
inline constexpr std::uint8_t kEndBits = Bit(Op::kBackwardWeight) | Bit(Op::kBackward);

// Collects faults up to a limit.
class FaultList {
 public:
  explicit FaultList(int limit) : limit_(limit < 1 ? 1 : limit) {}
  bool full() const { return full_; }
  void Add(Fault fault) {
    if (!full_) faults_.push_back(std::move(fault));
    full_ = faults_.size() >= limit_;
  }
  std::vector<Fault> Take() { return std::move(faults_); }

 private:
  std::size_t limit_;
  bool full_ = false;
  std::vector<Fault> faults_;
};

// Which ops the lanes use, from one pass over them.
struct Usage {
  bool communication = false;  // any SEND or RECV; then every edge between ranks needs both
  bool unshard = false;        // any UNSHARD; then every compute needs its stage unsharded
  bool reduce = false;         // any REDUCE_GRAD; then every stage needs one per update
  bool wait_send = false;      // any WAIT_SEND; then every SEND needs one
  bool wait_reduce = false;    // any WAIT_REDUCE_GRAD; then every REDUCE_GRAD needs one
  bool step = false;           // any STEP; then every stage needs all of them
  bool rare = false;           // any op other than compute and transfers
  bool vocabulary = false;     // any pass of the vocabulary
  std::int64_t parts = 0;
  static Usage Of(const Schedule& schedule);
};

// Checks the sizes that everything else relies on. Returns what is wrong, or an empty string.
std::string CheckShape(const Schedule& schedule, const Usage& usage);

// Rules of the ops other than compute and transfers: shards, offload, recompute, optimizer steps,
// waits for transfers.
class RareOps {
 public:
  RareOps(const Schedule& schedule, const Usage& usage, std::size_t indices);

  // Returns why the part may not run here, or an empty string. `history` is the (stage,
  // microbatch)'s byte before it, 0 for ops without a microbatch.
  std::string Check(const Part& part, std::uint8_t history);
  // Records a compute part, or a part that Check accepts.
  void Note(const Part& part);
  // Returns the number of STEPs or REDUCE_GRADs that a stage lacks at the end.
  int MissingSteps(int stage) const;
  int MissingReductions(int stage) const;
  int MissingReductionWaits(int stage) const;
  // Whether a (stage, microbatch) whose transfers are in `history` lacks the WAIT of a SEND.
  bool LacksWait(Op send, int stage, std::size_t microbatch) const;
  // The number of STEPs of each stage, if any has them.
  int updates() const { return static_cast<int>(updates_); }
  // The update of the stage's next STEP.
  int NextUpdate(int stage) const { return steps_[stage]; }
  // Whether the stage's gradients of an update are complete, and reduced if it reduces them.
  bool GradientsReady(int stage, int update) const;

 private:
  enum MoveBit : std::uint8_t {
    kOffloaded = 1,
    kReloaded = 2,
    kRecomputed = 4,
    kWaitedForward = 8,
    kWaitedBackward = 16
  };

  std::string CheckWeights(const Part& part) const;
  std::string CheckCompute(const Part& part) const;
  std::string CheckVersion(const Part& part) const;
  std::string CheckMove(const Part& part, std::uint8_t history) const;
  std::string CheckWait(const Part& part, std::uint8_t history) const;
  std::string CheckUpdate(const Part& part) const;
  std::size_t Key(const Part& part) const {
    return Index(part.stage) * indices_ + Index(part.microbatch);
  }
  // The update (STEP) that reads the gradient of the microbatch.
  std::size_t UpdateOf(int microbatch) const { return Index(microbatch) / indices_per_update_; }

  const Usage usage_;
  const WeightPolicy weights_;
  const int chain_length_, slices_;
  const std::size_t indices_, indices_per_batch_, indices_per_update_, updates_;
  std::vector<std::uint8_t> unsharded_;  // by stage
  std::vector<std::uint8_t> moves_;      // by (stage, microbatch): MoveBits
  std::vector<std::int32_t>
      ended_;  // by (stage, update): microbatch indices whose gradient is complete
  std::vector<std::int32_t> steps_;       // by stage: STEPs so far
  std::vector<std::int32_t> reduced_;     // by stage: REDUCE_GRADs so far
  std::vector<std::int32_t> waited_;      // by stage: WAIT_REDUCE_GRADs so far
  std::vector<int> shares_;               // by stage: GradientShares
  std::vector<StageBackward> backwards_;  // by stage
};

}  // namespace penstock::validation
