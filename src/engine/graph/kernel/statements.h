// What the sources of kernels for CPUs and for CUDA devices have in common. Private to
// graph/kernel/.
#pragma once

#include <string>
#include <vector>

#include "graph/kernel/kernel.h"

namespace penstock {

// Returns the statement of step `number`, whose value is named t{number}. `index` is where its
// tensor is accessed, if it has one.
std::string Statement(const KernelStep& step, std::size_t number, const std::string& index);
bool IsWrite(const KernelStep& step);
const char* CType(c10::ScalarType dtype);

// By step: the depth of the sums that it depends on.
std::vector<int> LevelsOf(const Kernel& kernel);

// Returns, by step, whether the inner loops of a level compute it: the sums that end the level, the
// level's writes, and what these depend on except values of the row.
std::vector<bool> StepsOfLevel(const Kernel& kernel, const std::vector<int>& levels, int level);

}  // namespace penstock
