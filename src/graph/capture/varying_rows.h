// Values whose number of rows differs from run to run (TensorType::rows_vary). A capture sees them
// with the rows of a balanced load, and must not record anything that depends on that number.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <span>
#include <string>

#include "graph/ir/ir.h"

namespace penstock {

// Whether the results of a call have rows that vary. `arguments` are those of the op's schema.
// Returns nullopt, and sets `fault`, if the results would depend on the number of rows of the
// example.
std::optional<bool> ResultRowsVary(const c10::OperatorHandle& op,
                                   std::span<const Argument> arguments, const Graph& graph,
                                   std::string& fault);

}  // namespace penstock
