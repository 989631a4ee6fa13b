// Collects the traces of all hosts.
#pragma once

#include <span>
#include <string>

#include "base/byte_stream.h"
#include "base/result.h"
#include "runtime/hosts/collectives.h"
#include "runtime/hosts/hosted_ranks.h"
#include "runtime/measure/trace.h"

namespace penstock {

// All hosts call it after the same rounds. The leader's trace then covers all ranks, with times of
// its clock; the others' traces do not change. Errors: the reason of an abort of the group.
Status GatherTrace(Collectives& hosts, const HostedRanks& ranks, const ClockOffset& clock,
                   Trace& trace);

// One round of one rank as bytes, with times of the leader's clock.
void PutStamps(const Trace& trace, int rank, std::int64_t round, const ClockOffset& clock,
               ByteWriter& writer);
void TakeStamps(ByteReader& reader, Trace& trace);

}  // namespace penstock
