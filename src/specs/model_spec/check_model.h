// The check of a model whose configuration is in a file with names of its own.
#pragma once

#include "base/result.h"
#include "base/text/mentions.h"
#include "model_spec/model_config.h"

namespace penstock {

// As CheckModel(config), but names the parameters, such as "model.heads", by their spelling.
Status CheckModel(const ModelConfig& config, const Spelling& spelling);

}  // namespace penstock
