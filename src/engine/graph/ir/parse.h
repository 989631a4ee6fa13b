// Parses the text that PrintGraph writes, so that tests of passes can use text.
#pragma once

#include <map>
#include <string_view>

#include "base/result.h"
#include "graph/ir/ir.h"

namespace penstock {

// Returns a graph for which PrintGraph returns `text`. The text does not contain the tensors of
// constants, so `constants` must contain them by value. Ignores sizes in bytes and FLOPs.
// Errors: kInvalidArgument, with the line and what it lacks, or because VerifyGraph rejects the
// graph.
Result<Graph> ParseGraph(std::string_view text,
                         const std::map<ValueId, at::Tensor>& constants = {});

}  // namespace penstock
