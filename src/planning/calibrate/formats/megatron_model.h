// The model of a run of Megatron-LM.
#pragma once

#include "calibrate/formats/format.h"
#include "calibrate/formats/megatron_arguments.h"

namespace penstock {

// Sets the model by its sizes. `tensor` ranks divide its vocabulary, which is padded for them.
Status SetMegatronModel(const MegatronArguments& arguments, int tensor, RunTexts& texts);

// Sets which layers the stages of these pipeline ranks have.
Status SetMegatronStages(const MegatronArguments& arguments, int ranks, RunTexts& texts);

}  // namespace penstock
