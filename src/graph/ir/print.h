// Graphs as text for people.
#pragma once

#include <string>
#include <string_view>

#include "graph/ir/ir.h"

namespace penstock {

// "f32[2,16,32]", with strides where it is not contiguous.
std::string PrintType(const TensorType& type);
// The dtype of "f32"; Undefined for what is none.
c10::ScalarType DtypeOf(std::string_view text);
// "1.5 GFLOP".
std::string FormatFlops(std::int64_t flops);
// A constant argument; equal texts mean equal constants, for the kinds that ops take.
std::string PrintConstant(const c10::IValue& value);
bool HasExactText(const c10::IValue& value);
// One line a value, in running order:
//
//   graph forward(%3: f32[2,16,32]) -> (%9)
//     bound %0: f32[32,32] 4.0 KiB = parameter 0 wq.weight
//     %5: f32[32,32] 4.0 KiB 65.5 kFLOP = aten::mm(%4, %1)
//
// ParseGraph (parse.h) reads it back. A line "-- backward" stands before nodes of the backward, a
// line
// "-- forward" before nodes of the forward that follow those.
std::string PrintGraph(const Graph& graph);
// The same for Graphviz.
std::string PrintDot(const Graph& graph);

}  // namespace penstock
