// Settings of the process-wide allocator.
#pragma once

namespace penstock {

// Makes malloc keep freed memory and take blocks of every size from one heap. A step that allocates
// what the previous one freed then has no page faults, and lanes are adjacent, in huge pages
// (schedule/reserve.h). The process keeps its peak memory until it ends. Programs call this first
// in main(); a library must not decide it.
void KeepFreedMemory();

}  // namespace penstock
