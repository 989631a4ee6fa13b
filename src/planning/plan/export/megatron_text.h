// A plan as arguments of Megatron-LM's pretrain_gpt.py.
#pragma once

#include <string>

#include "base/result.h"
#include "plan/export/plan_job.h"

namespace penstock {

// Returns a file for bash with the arguments in the array MEGATRON_ARGS: every dimension and the
// sizes of the model; data, tokenizer, learning rate and what else changes neither time nor memory
// are not among them. Errors: kInvalidArgument about what Megatron-LM does not have.
Result<std::string> MegatronText(const PlanJob& job);

}  // namespace penstock
