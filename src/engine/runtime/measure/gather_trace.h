// Collects the traces of all processes.
#pragma once

#include "base/byte_stream.h"
#include "base/result.h"
#include "runtime/measure/trace.h"
#include "runtime/processes/collectives.h"
#include "runtime/processes/local_ranks.h"

namespace penstock {

// All processes call it after the same rounds. The leader's trace then covers all ranks, with times
// of its clock; the others' traces do not change. Errors: the reason of an abort of the group.
Status GatherTrace(Collectives& processes, const LocalRanks& ranks, const ClockOffset& clock,
                   Trace& trace);

// One round of one rank as bytes, with times of the leader's clock.
void PutStamps(const Trace& trace, int rank, std::int64_t round, const ClockOffset& clock,
               ByteWriter& writer);
void TakeStamps(ByteReader& reader, Trace& trace);

}  // namespace penstock
