// Forms of an op that write into no argument.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

namespace penstock {

// Returns the out-of-place form of an op, such as aten::add.Scalar for aten::add_.Scalar.
std::optional<c10::OperatorHandle> FunctionalForm(const c10::OperatorHandle& op);
// Returns the form of an op with an argument `out` that has all other arguments and returns the
// result.
std::optional<c10::OperatorHandle> WithoutOut(const c10::OperatorHandle& op);

}  // namespace penstock
