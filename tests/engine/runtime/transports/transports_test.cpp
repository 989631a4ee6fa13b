#include "runtime/transports/transports.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/processes/local_ranks.h"
#include "tests/engine/runtime/transports/transport_conformance.h"
#include "tests/engine/tcp/tcp_loopback.h"

namespace penstock {

std::vector<TransportCase> TestedTransports() {
  return {{"threads", 1},
          {"processes", 1},
          {"processes", 2},
          {"processes", 2, MakeTcpLoopback, "tcp"},
          {"bytes", 1},
          {"bytes", 2},
          {"bytes", 2, MakeTcpLoopback, "tcp"},
          {"bytes", 2, MakeAuthenticatedLoopback, "authenticated_tcp"}};
}

namespace {

TEST(TransportsTest, EveryTransportIsInTheSuite) {
  std::set<std::string> tested;
  std::set<std::string> remote;
  for (const TransportCase& one : TestedTransports()) {
    tested.insert(one.name);
    if (one.processes > 1) remote.insert(one.name);
  }
  for (const TransportKind& kind : TransportKinds()) {
    EXPECT_TRUE(tested.contains(std::string(kind.name))) << kind.name;
    EXPECT_EQ(remote.contains(std::string(kind.name)), kind.between_processes) << kind.name;
  }
}

TEST(TransportsTest, UnknownAndUnsuitableTransportsAreRefused) {
  const Schedule schedule = SmallGpipe(2, 1);
  const MessageMap messages(schedule);
  const LocalRanks half = LocalRanks::Split(2, 2, 0).value();
  const auto groups = MakeLocalProcesses(2);
  const auto message = [&](std::string_view name, ProcessGroup* group) {
    const auto made = MakeTransport(name, {messages, half, group});
    return made ? std::string() : made.error().line();
  };
  EXPECT_EQ(message("thread", groups[0].get()),
            "no transport is named 'thread'; did you mean 'threads'?");
  const std::string unfit = "transport '{}' does not connect the processes that the ranks are on";
  EXPECT_EQ(message("threads", groups[0].get()), fmt::format(fmt::runtime(unfit), "threads"));
  EXPECT_EQ(message("processes", nullptr), fmt::format(fmt::runtime(unfit), "processes"));
}

}  // namespace
}  // namespace penstock
