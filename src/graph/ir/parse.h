// Parses the text that PrintGraph writes, so that tests of passes can use text.
#pragma once

#include <map>
#include <string_view>

#include "base/result.h"
#include "graph/ir/ir.h"

namespace penstock {

// PrintGraph(ParseGraph(text)) equals `text`. The text does not contain the memory of constants;
// `constants` supplies it by value. Sizes in bytes and FLOPs in the text are ignored.
// Errors: kInvalidArgument, with the line and what it lacks, or because VerifyGraph rejects the
// graph.
Result<Graph> ParseGraph(std::string_view text,
                         const std::map<ValueId, at::Tensor>& constants = {});

}  // namespace penstock
