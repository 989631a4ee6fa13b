// The allocator of a whole process.
#pragma once

namespace penstock {

// Makes malloc keep what is freed, and take blocks of any size from one heap: a step that allocates
// again what the last one freed has no page faults, and lanes lie one behind the other, in huge
// pages (schedule/reserve.h). The process holds its peak until it ends. For programs to call first
// in main(); a library must not decide this.
void KeepFreedMemory();

}  // namespace penstock
