// Writes traces without a clock, for tests of their readers.
#pragma once

#include "runtime/measure/trace.h"
#include "schedule/timeline.h"

namespace penstock {

// Writes one round with the times of the timeline, in seconds. A stage holds 100 bytes from each F
// to its B. A B sends its input gradient `sent_before_end` seconds before its end, if that is not
// 0.
inline void WriteRound(Trace& trace, std::int64_t round, const Timeline& timeline,
                       double sent_before_end = 0) {
  for (int rank = 0; rank < trace.schedule().ranks(); ++rank) {
    const std::vector<Span>& spans = timeline.spans[rank];
    Stamp* stamps = trace.Begin(rank, round);
    std::int64_t held = 0;
    for (const ProgramEntry& entry : trace.program(rank)) {
      if (entry.part.op == Op::kForward) held += 100;
      if (entry.part.op == Op::kBackward) held -= 100;
      const Span span = entry.position < 0 ? Span{} : spans[entry.position];
      stamps->start_ns = static_cast<std::int64_t>(span.start * 1e9);
      stamps->end_ns = static_cast<std::int64_t>(span.end * 1e9);
      if (sent_before_end > 0 && entry.part.op == Op::kBackward) {
        stamps->sent_ns = static_cast<std::int64_t>((span.end - sent_before_end) * 1e9);
      }
      stamps->activation_bytes = held;
      ++stamps;
    }
    trace.End(rank, round);
  }
}

}  // namespace penstock
