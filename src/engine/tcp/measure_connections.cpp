#include "tcp/measure_connections.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/index.h"
#include "base/median.h"
#include "runtime/collectives/rank_groups.h"
#include "runtime/processes/local_ranks.h"
#include "runtime/transports/transports.h"
#include "schedule/catalog.h"
#include "tcp/tcp_process_group.h"

namespace penstock {
namespace {

constexpr int kExchangeRuns = 9;
constexpr int kUntimed = 5;               // exchanges before the timed ones
constexpr double kSecondsPerRun = 0.015;  // about
constexpr double kMostExchanges = 500;    // per run

// A rank as one side of an exchange, with what connects it to the other side.
struct ConnectedRank {
  std::unique_ptr<ProcessGroup> process;  // null if both ranks are threads
  std::shared_ptr<Transport> transport;
  std::unique_ptr<RankGroup> group;
};
using ConnectedRanks = std::array<ConnectedRank, 2>;

// Runs `first` and `second` on a thread of its own each. Returns the first error.
template <class Function>
Status OnBothRanks(const Function& run) {
  Status other;
  std::thread second([&] { other = run(1); });
  const Status first = run(0);
  second.join();
  return first ? other : first;
}

// Returns the seconds of one exchange, the median of several runs. exchange(rank, round) is called
// on a thread of each rank. `round` counts the exchanges of these ranks.
template <class Exchange>
Result<double> TimeOfExchange(const Exchange& exchange, std::int64_t& round) {
  // Returns the seconds of `count` exchanges.
  const auto time = [&](int count) -> Result<double> {
    std::chrono::duration<double> seconds{};
    const Status status = OnBothRanks([&](int rank) -> Status {
      std::int64_t next = round;
      for (int i = 0; i < kUntimed; ++i) PENSTOCK_TRY_STATUS(exchange(rank, next++));
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < count; ++i) PENSTOCK_TRY_STATUS(exchange(rank, next++));
      if (rank == 0) seconds = std::chrono::steady_clock::now() - start;
      return {};
    });
    PENSTOCK_TRY_STATUS(status);
    round += kUntimed + count;
    return seconds.count() / count;
  };
  PENSTOCK_TRY(const double first, time(kUntimed));
  const double count = std::clamp(kSecondsPerRun / std::max(first, 1e-9), 3.0, kMostExchanges);
  std::vector<double> runs;
  for (int run = 0; run < kExchangeRuns; ++run) {
    PENSTOCK_TRY(runs.emplace_back(), time(static_cast<int>(count)));
  }
  return Median(std::move(runs));
}

// Returns the seconds of a message one way, as the pipeline sends it.
Result<double> TimeOfMessage(const ConnectedRanks& ranks, const MessageMap& messages,
                             std::size_t bytes, std::int64_t& round) {
  const int there = messages.OutSlot({Op::kForward, 0, 0});
  const int back = messages.OutSlot({Op::kBackward, 1, 0});
  const auto exchange = [&](int rank, std::int64_t number) -> Status {
    Transport& transport = *ranks[Index(rank)].transport;
    if (rank == 0) transport.Send(there, number, AllocateMessage(bytes));
    Message got;
    if (!transport.Receive(rank == 0 ? back : there, number, got)) {
      return tl::unexpected(transport.reason());
    }
    if (rank == 1) transport.Send(back, number, AllocateMessage(bytes));
    return {};
  };
  PENSTOCK_TRY(const double both_ways, TimeOfExchange(exchange, round));
  return both_ways / 2;
}

Result<double> TimeOfAllReduce(const ConnectedRanks& ranks, std::size_t elements) {
  std::array<std::vector<float>, 2> values;
  values.fill(std::vector<float>(elements));
  const auto exchange = [&](int rank, std::int64_t) -> Status {
    const std::size_t index = Index(rank);
    const Bytes bytes = std::as_writable_bytes(std::span(values[index]));
    RankGroup& group = *ranks[index].group;
    PENSTOCK_TRY(const RankGroup::Ticket ticket,
                 group.AllReduce(bytes, bytes, ElementType::kFloat32));
    return group.Wait(ticket);
  };
  std::int64_t round = 0;
  return TimeOfExchange(exchange, round);
}

Result<ConnectionCosts> CostsBetween(const ConnectedRanks& ranks, const MessageMap& messages,
                                     std::size_t message_bytes, double reduced_bytes) {
  ConnectionCosts costs;
  std::int64_t round = 0;
  PENSTOCK_TRY(costs.latency, TimeOfMessage(ranks, messages, 0, round));
  PENSTOCK_TRY(costs.message, TimeOfMessage(ranks, messages, message_bytes, round));
  constexpr double kElement = sizeof(float);
  constexpr double kLeastElements = 1 << 18;  // fewer take no longer than one
  const double elements = std::max(kLeastElements, std::floor(reduced_bytes / kElement));
  PENSTOCK_TRY(costs.all_reduce_latency, TimeOfAllReduce(ranks, 1));
  PENSTOCK_TRY(const double time, TimeOfAllReduce(ranks, static_cast<std::size_t>(elements)));
  // Noise makes no bandwidth infinite.
  costs.all_reduce_bandwidth =
      kElement * elements / std::max(time - costs.all_reduce_latency, time / 2);
  return costs;
}

// Sets what connects a rank. `process` may be null.
Status ConnectRank(const MessageMap& messages, const LocalRanks& ranks, int rank,
                   ConnectedRank& connected) {
  ProcessGroup* const process = connected.process.get();
  PENSTOCK_TRY(std::unique_ptr<Transport> transport,
               MakeTransport(DefaultTransport(ranks), {messages, ranks, process}));
  connected.transport = std::move(transport);
  PENSTOCK_TRY(std::vector<RankGroupEnds> ends,
               MakeRankGroups({{"profile", {0, 1}}}, ranks, process));
  connected.group = std::move(ends[0][Index(rank)]);
  return {};
}

Result<ConnectedRanks> ConnectThreads(const MessageMap& messages) {
  const LocalRanks both(2);
  ConnectedRanks ranks;
  PENSTOCK_TRY(std::unique_ptr<Transport> transport,
               MakeTransport(DefaultTransport(both), {messages, both}));
  ranks[0].transport = ranks[1].transport = std::move(transport);
  PENSTOCK_TRY(std::vector<RankGroupEnds> ends,
               MakeRankGroups({{"profile", {0, 1}}}, both, nullptr));
  for (std::size_t rank = 0; rank < 2; ++rank) ranks[rank].group = std::move(ends[0][rank]);
  return ranks;
}

Result<ConnectedRanks> ConnectProcesses(const MessageMap& messages) {
  std::vector<TcpListener> listeners;
  TcpRun run;
  run.secret = BytesOf(RandomBytes());
  for (int process = 0; process < 2; ++process) {
    PENSTOCK_TRY(listeners.emplace_back(), OpenTcpListener("127.0.0.1"));
    run.addresses.push_back(listeners.back().address);
  }
  ConnectedRanks ranks;
  const Status status = OnBothRanks([&](int process) -> Status {
    const std::size_t index = Index(process);
    TcpRun own = run;
    own.process = process;
    PENSTOCK_TRY(ranks[index].process, ConnectTcpProcesses(std::move(listeners[index]), own));
    PENSTOCK_TRY(const LocalRanks local, LocalRanks::Split(2, 2, process));
    return ConnectRank(messages, local, process, ranks[index]);
  });
  PENSTOCK_TRY_STATUS(status);
  return ranks;
}

}  // namespace

Result<MeasuredConnections> MeasureConnections(double message_bytes, double reduced_bytes) {
  ScheduleParams params;
  params.ranks = 2;
  params.microbatches = 1;
  PENSTOCK_TRY(const Schedule schedule, Generate("gpipe", params));
  const MessageMap messages(schedule);
  const auto bytes = static_cast<std::size_t>(message_bytes);
  MeasuredConnections measured;
  PENSTOCK_TRY(const ConnectedRanks threads, ConnectThreads(messages));
  PENSTOCK_TRY(measured.threads, CostsBetween(threads, messages, bytes, reduced_bytes));
  PENSTOCK_TRY(const ConnectedRanks processes, ConnectProcesses(messages));
  PENSTOCK_TRY(measured.processes, CostsBetween(processes, messages, bytes, reduced_bytes));
  for (const ConnectedRank& rank : processes) rank.process->Leave();
  return measured;
}

}  // namespace penstock
