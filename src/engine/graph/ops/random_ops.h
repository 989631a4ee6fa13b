// Numbers of random ops: the position of a random op, such as dropout, in the whole model.
//
// Capture numbers the random ops of a stage, and a run seeds each by its number. So an op draws the
// same numbers whichever stage it is in. A model's code calls BeginLayer before each layer, because
// a stage does not know how many random ops the layers of earlier stages have.
// Threads: each has numbers of its own.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>

namespace penstock {

// The most random ops of a layer.
inline constexpr std::int64_t kRandomOpsPerLayer = 1 << 20;

// Returns the number of the thread's next random op, and advances it.
std::int64_t NextRandomOp();
std::int64_t PeekRandomOp();  // without advancing it
void SetRandomOp(std::int64_t next);
// Ranks that have the parts of a tensor capture its random ops with different parts, from 1 on, and
// draw different numbers. 0, the default: all ranks draw the same ones.
void SetPartOfTensor(std::int64_t part);

// Continues with the first number of the next layer: a multiple of kRandomOpsPerLayer. What
// precedes the first layer has the numbers from 0. Outside of capture, it has no effect.
void BeginLayer();

// Seeds the generator for a random op of a run that has seed `seed`.
void SeedRandomOp(at::Generator& generator, std::uint64_t seed, std::int64_t number);

}  // namespace penstock
