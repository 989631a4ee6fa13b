// StageCosts: what the actions of one stage take, and the table that describes each of these costs.
//
// Units: time in any one unit; memory in activations of one rank's share of one microbatch, or in
// bytes if the costs come from a measured model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "schedule/action.h"

namespace penstock {

// The longest time, largest amount of memory and largest factor of one cost. Within them, sums over
// any schedule stay finite, and their figures are short enough to print.
inline constexpr double kMostTime = 1e15;
inline constexpr double kMostMemory = 1e18;  // in bytes, a million terabytes
inline constexpr double kMostFactor = 1e6;

// A value of 0 is a price like any other: a cost without a value has the default of its row before
// anything is priced.
struct StageCosts {
#define STAGE_COST(member, initial, ...) double member = initial;
#include "schedule/stage_costs.def"
#undef STAGE_COST

  // Time of B; not below 0 by rounding.
  double Backward() const {
    return std::max(0.0, backward_input + backward_weight - saved_by_whole_backward);
  }
  // Memory that I, W, B or T frees at its end; negative if it allocates more than it frees.
  double Freed(Op op) const {
    switch (op) {
      case Op::kBackward:
        return activation - gradients_of_others;
      case Op::kBackwardInput:
        return activation - activation_after_i - gradients_of_others;
      case Op::kBackwardWeight:
        return activation_after_i;
      case Op::kVocabularyWeight:
        return softmax;
      default:
        return 0;
    }
  }
};

enum class CostKind : std::uint8_t {
  kTime,
  kMemory,
  kMemoryChange,  // an amount of memory that may be negative
  kFactor,        // without a unit
};

// A cost of a microbatch grows with its length, and a slice has its share of it.
enum class CostOf : std::uint8_t { kMicrobatch, kStage };

// The cost of a stage from the costs of its layers.
enum class OverLayers : std::uint8_t { kSum, kMost, kFirst, kLast };

// What a price is for. A stage costs its share of the price of a rank, and a slice its share of the
// price of a microbatch. A stage's input is as large as a whole rank's; actions that are priced per
// microbatch only are never divided.
enum class PricePer : std::uint8_t {
  kAll,
  kRank,
  kRankAndMicrobatch,
  kStageAndMicrobatch,
  kMicrobatch
};

struct StageCost {
  std::string_view name;  // of the member, the key of files and the column of Python
  double StageCosts::*value = nullptr;
  CostKind kind = CostKind::kTime;
  CostOf of = CostOf::kMicrobatch;
  std::string_view meaning;
  OverLayers layers = OverLayers::kSum;
  double StageCosts::*otherwise = nullptr;  // the cost whose value is the default
  double StageCosts::*at_most = nullptr;    // a cost that it may not exceed
  bool in_files = true;                     // whether `stage_costs` and `layer_costs` have the key
  struct Price {
    std::string_view key;  // empty: `--price` does not set it
    PricePer per = PricePer::kAll;
  } price = {};

  bool is_memory() const { return kind == CostKind::kMemory || kind == CostKind::kMemoryChange; }
  // Returns the value that the cost has in `stage` if nothing sets it.
  double Default(const StageCosts& stage) const {
    return otherwise ? stage.*otherwise : StageCosts{}.*value;
  }
  // Whether a text that lists a stage's costs names this one even with its default value, as it
  // does with the times and the memory that every schedule has.
  bool always_given() const {
    return kind != CostKind::kFactor && !otherwise && StageCosts{}.*value != 0;
  }
  bool IsNeeded(const StageCosts& stage) const {
    return always_given() || stage.*value != Default(stage);
  }
};

inline constexpr StageCost kStageCosts[] = {
#define STAGE_COST(member, initial, cost_kind, cost_of, text, ...) \
  {.name = #member,                                                \
   .value = &StageCosts::member,                                   \
   .kind = CostKind::cost_kind,                                    \
   .of = CostOf::cost_of,                                          \
   .meaning = text,                                                \
   __VA_ARGS__},
#include "schedule/stage_costs.def"
#undef STAGE_COST
};

// Refuses a value that is below 0, not finite or above the maximum of its kind. The caller adds
// which cost it is.
Status CheckTime(double time);
Status CheckMemory(double amount);
Status CheckCost(const StageCost& cost, double value);

// Refuses a stage with a cost out of range; the error's parameter is the cost.
Status CheckStage(const StageCosts& stage);

}  // namespace penstock
