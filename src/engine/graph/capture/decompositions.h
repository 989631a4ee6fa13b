// Ops that capture replaces by other ops, because their own code or their backward cannot be
// captured: it reads values of tensors, or needs a kernel that a graph cannot run.
#pragma once

#include <c10/core/DispatchKey.h>

namespace penstock {

class Recorder;

// A dispatch key above autograd that no part of libtorch uses. Included while a stage is captured.
inline constexpr c10::DispatchKey kDecompositions = c10::DispatchKey::DeferredInit;

// Returns the recorder of this thread's capture, or null.
Recorder* CurrentRecorder();

}  // namespace penstock
