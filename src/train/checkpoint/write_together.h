// One safetensors file of tensors that lie on several hosts.
#pragma once

#include <string>

#include "base/result.h"
#include "runtime/hosts/collectives.h"
#include "train/checkpoint/safetensors.h"

namespace penstock {

// Each host calls it with its own tensors and writes them at their places; only their names, shapes
// and checksums cross hosts. The file is the one that WriteSafetensors writes of all of them, with
// the leader's metadata. A tensor that several hosts have is written by the first of them. All
// hosts must see the file's folder.
// Errors: on all hosts the first host's that failed, as WriteSafetensors; the reason of an abort.
Status WriteTogether(Collectives& hosts, const std::string& path, const Safetensors& own);

}  // namespace penstock
