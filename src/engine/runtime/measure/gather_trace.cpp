#include "runtime/measure/gather_trace.h"

#include <vector>

namespace penstock {

void PutStamps(const Trace& trace, int rank, std::int64_t round, const ClockOffset& clock,
               ByteWriter& writer) {
  const std::span<const Stamp> own = trace.RankStep(rank, round);
  std::vector<Stamp> stamps(own.begin(), own.end());
  for (Stamp& stamp : stamps) {
    stamp.start_ns += clock.ns;
    stamp.end_ns += clock.ns;
    if (stamp.sent_ns != 0) stamp.sent_ns += clock.ns;
  }
  writer.Put(rank);
  writer.Put(round);
  writer.PutAll(std::span<const Stamp>(stamps));
}

void TakeStamps(ByteReader& reader, Trace& trace) {
  const int rank = reader.Get<int>();
  const auto round = reader.Get<std::int64_t>();
  trace.Set(rank, round, reader.GetAll<Stamp>());
}

Status GatherTrace(Collectives& processes, const LocalRanks& ranks, const ClockOffset& clock,
                   Trace& trace) {
  if (processes.processes() == 1) return {};
  ByteWriter writer;
  for (const int rank : ranks.here()) {
    for (std::int64_t round = trace.first_round(); round < trace.last_round(); ++round) {
      PutStamps(trace, rank, round, clock, writer);
    }
  }
  PENSTOCK_TRY(const std::vector<std::string> all, processes.ToLeader(writer.Take()));
  for (int process = 1; process < std::ssize(all); ++process) {
    for (ByteReader reader(all[process]); !reader.at_end();) TakeStamps(reader, trace);
  }
  return {};
}

}  // namespace penstock
