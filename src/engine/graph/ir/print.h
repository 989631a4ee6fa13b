// Prints graphs as text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "graph/ir/ir.h"

namespace penstock {

// The word for a kind in the text of a graph, such as "parameter".
std::string_view WordFor(BoundKind kind);
// Returns the kind; nullopt if there is no such word.
std::optional<BoundKind> KindFor(std::string_view word);

// Formats as "f32[2,16,32]", followed by "/[strides]" if the type is not contiguous, and by "~" if
// its rows vary.
std::string PrintType(const TensorType& type);
// Returns the dtype that is printed as `text`, such as "f32"; Undefined if there is none.
c10::ScalarType DtypeOf(std::string_view text);
// Formats as "1.5 GFLOP".
std::string FormatFlops(std::int64_t flops);
// Formats a constant argument.
std::string PrintConstant(const c10::IValue& value);
// Returns whether only equal constants have the same text.
bool HasExactText(const c10::IValue& value);
// Prints a graph, one line per value, in execution order:
//
//   graph forward(%3: f32[2,16,32]) -> (%9)
//     bound %0: f32[32,32] 4.0 KiB = parameter 0 wq.weight
//     %5: f32[32,32] 4.0 KiB 65.5 kFLOP = aten::mm(%4, %1)
//
// ParseGraph (parse.h) parses it. A line "-- backward" precedes nodes of the backward, and a line
// "-- forward" precedes nodes of the forward that follow those.
std::string PrintGraph(const Graph& graph);
// Prints a graph in Graphviz's DOT language.
std::string PrintDot(const Graph& graph);

}  // namespace penstock
