// Colors for print: ops keep different brightness where there is no color.
#pragma once

#include "report/palette.h"
#include "simulate/memory/memory_by_kind.h"

namespace penstock {

// As BlockColor.
Color PaperBlockColor(Op op, int chunk, int chunks);
// The color of a kind of memory on a screen, and on paper.
Color MemoryColor(MemoryKind kind);
Color PaperMemoryColor(MemoryKind kind);

}  // namespace penstock
