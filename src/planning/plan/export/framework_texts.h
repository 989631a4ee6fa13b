// A plan as a file of each framework. Errors: kInvalidArgument about what the framework does not
// have.
#pragma once

#include <string>

#include "base/result.h"
#include "plan/export/plan_job.h"

namespace penstock {

// Returns a configuration of `penstock train`, with the keys that differ from their defaults. `csv`
// is the path of the file that has the schedule already. Errors: also as ChooseSchedule.
Result<std::string> TrainText(const PlanJob& job, const std::string& csv);

// Returns a file for bash with arguments of Megatron-LM's pretrain_gpt.py in the array
// MEGATRON_ARGS: every dimension and the sizes of the model; data, tokenizer, learning rate and
// what else changes neither time nor memory are not among them. Its comment has the command, which
// runs schedules that Megatron-LM does not have by `python -m penstock.megatron`. `csv` is the path
// of the schedule's file.
Result<std::string> MegatronText(const PlanJob& job, const std::string& csv);

// Returns a file for bash with overrides of a recipe of Megatron-Bridge, the arguments of
// scripts/training/run_recipe.py, in the array BRIDGE_ARGS. A model may lack a recipe.
Result<std::string> BridgeText(const PlanJob& job);

// Returns a module whose function plan() returns the Trainer.Config of torchtitan 0.3. `csv` is the
// path of the schedule's file.
Result<std::string> TorchtitanText(const PlanJob& job, const std::string& csv);

}  // namespace penstock
