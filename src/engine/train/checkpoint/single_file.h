// Writes one safetensors file with the tensors of several processes.
#pragma once

#include <string>

#include "base/result.h"
#include "runtime/processes/collectives.h"
#include "train/checkpoint/safetensors.h"

namespace penstock {

// Writes the same file as WriteSafetensors with the tensors of all processes and the leader's
// metadata. Called on all processes. Each process writes its own tensors at their offsets; only
// names, shapes and checksums are sent. If several processes have a tensor, the first of them
// writes it. Requires: all processes see the file's folder. Errors, on all processes: as
// WriteSafetensors, from the first process that failed; the reason of an abort.
Status WriteSingleFile(Collectives& processes, const std::string& path, const Safetensors& own);

}  // namespace penstock
