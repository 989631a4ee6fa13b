// Writes one safetensors file with the tensors of several hosts.
#pragma once

#include <string>

#include "base/result.h"
#include "runtime/hosts/collectives.h"
#include "train/checkpoint/safetensors.h"

namespace penstock {

// Writes the same file as WriteSafetensors with the tensors of all hosts and the leader's metadata.
// Called on all hosts. Each host writes its own tensors at their offsets; only names, shapes and
// checksums are sent. If several hosts have a tensor, the first of them writes it. Requires: all
// hosts see the file's folder.
// Errors, on all hosts: as WriteSafetensors, from the first host that failed; the reason of an
// abort.
Status WriteTogether(Collectives& hosts, const std::string& path, const Safetensors& own);

}  // namespace penstock
