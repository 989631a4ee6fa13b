// What Megatron-Core can run of a plan, for Megatron-LM and Megatron-Bridge.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/export/plan_job.h"

namespace penstock {

// Refuses dimensions that Megatron-Core does not have, whatever the schedule. `framework` is its
// user's name in errors. Errors: kInvalidArgument about the dimension.
Status CheckMegatronCore(const PlanJob& job, std::string_view framework);

// Refuses schedules that Megatron-Core does not have itself.
Status CheckOwnSchedule(const PlanJob& job, std::string_view framework);

// How layers are recomputed, by the names and values of TransformerConfig
// (megatron/core/transformer/transformer_config.py).
struct MegatronRecompute {
  std::string granularity = {}, method = {};  // empty: none
  std::int64_t layers = 0;
  std::vector<std::string> modules = {};
};
MegatronRecompute MegatronRecomputeOf(const PlanJob& job);

// What the price assumes of messages and dtypes, which the files must set.
struct MegatronAssumptions {
  bool overlaps_tensor = false;    // tp_comm_overlap
  bool reduces_in_fp32 = true;     // grad_reduce_in_fp32
  bool gathers_quantized = false;  // fp8_param_gather, fp4_param_gather
  bool fuses_permutation = false;  // moe_permute_fusion
};
MegatronAssumptions AssumptionsOf(const PlanJob& job);

// The value of cp_comm_type.
std::string_view ContextExchangeOf(const PlanJob& job);

}  // namespace penstock
