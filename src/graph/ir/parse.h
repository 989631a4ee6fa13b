// Graphs from the text that PrintGraph writes: so that tests of passes are text.
#pragma once

#include <map>
#include <string_view>

#include "base/result.h"
#include "graph/ir/ir.h"

namespace penstock {

// PrintGraph(ParseGraph(text)) is `text`. What the text does not hold: the memory of constants,
// which `constants` gives by value. Sizes and FLOPs in the text are not read.
// Errors: kInvalidArgument, naming the line and what it lacks; a graph that VerifyGraph refuses.
Result<Graph> ParseGraph(std::string_view text,
                         const std::map<ValueId, at::Tensor>& constants = {});

}  // namespace penstock
