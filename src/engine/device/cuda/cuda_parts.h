// Green contexts: streams that use a part of a GPU's multiprocessors.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace penstock {

// Returns a new stream on the part-th of `parts` groups of multiprocessors, which are as equal as
// the GPU allows and do not overlap. The stream lives as long as the process. Throws std::exception
// if the driver is older than CUDA 12.5 or the GPU cannot be divided so.
c10::Stream MakeCudaPartStream(c10::Device device, int part, int parts);

}  // namespace penstock
