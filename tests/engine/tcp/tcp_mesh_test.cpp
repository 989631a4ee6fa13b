#include "tcp/tcp_mesh.h"

#include <gtest/gtest.h>

#include "tests/engine/tcp/tcp_loopback.h"

namespace penstock {
namespace {

using std::chrono::milliseconds;

TEST(TcpAddressTest, TextsOfAddresses) {
  EXPECT_EQ(TcpAddressText(ParseTcpAddress("node17:41234").value()), "node17:41234");
  EXPECT_EQ(ParseTcpAddress("[fe80::1]:80").value().name, "fe80::1");
  EXPECT_EQ(TcpAddressText(ParseTcpAddress("[fe80::1]:80").value()), "[fe80::1]:80");
  for (const char* const text :
       {"", "node17", ":1", "node17:", "node17:0", "node17:65536", "a:b"}) {
    EXPECT_EQ(ParseTcpAddress(text).error().line(),
              fmt::format("'{}' is not an address: write NAME:PORT", text));
  }
}

TEST(TcpListenerTest, ListensAtAnInterfaceANameOrAFoundAddress) {
  EXPECT_TRUE(OpenTcpListener("lo").value().address.starts_with("127.0.0.1:"));
  EXPECT_TRUE(OpenTcpListener("localhost").value().address.starts_with("localhost:"));
  const TcpListener found = OpenTcpListener().value();
  EXPECT_TRUE(ConnectToListener(found.address).is_open());
  const Error elsewhere = OpenTcpListener("192.0.2.1").error();
  EXPECT_EQ(elsewhere.code, ErrorCode::kUnavailable);
  EXPECT_EQ(elsewhere.message,
            "cannot listen at '192.0.2.1': Cannot assign requested address: give a network "
            "interface, name or address of this machine");
}

TEST(TcpMeshTest, StrangersAndProcessesWithAnotherSecretAreRefused) {
  TcpListeners processes(3);
  const Socket silent = ConnectToListener(processes.addresses[0]);
  const Socket noise = ConnectToListener(processes.addresses[0]);
  const std::string text(1000, 'x');
  ASSERT_TRUE(SendAll(noise, text.data(), text.size()));
  auto first = StartToConnect(processes, 0);
  auto second = StartToConnect(processes, 1);

  TcpListeners others(3);
  others.addresses[0] = processes.addresses[0];
  EXPECT_EQ(StartToConnect(others, 1, "another secret of tests").get(),
            fmt::format("process 0 at {} closed the connection: it has ended, or has another "
                        "secret",
                        processes.addresses[0]));

  EXPECT_EQ(StartToConnect(processes, 2).get(), "");
  EXPECT_EQ(first.get(), "");
  EXPECT_EQ(second.get(), "");
}

TEST(TcpMeshTest, ProcessesWithOtherAddressesAreRefused) {
  TcpListeners two(2), three(3);
  three.addresses[0] = two.addresses[0];
  auto first = StartToConnect(two, 0);
  EXPECT_EQ(StartToConnect(three, 1).get(),
            "process 0 has other addresses than this process: give all processes the same ones");
  EXPECT_EQ(first.get(),
            "process 1 has other addresses than this process: give all processes the same ones");
}

TEST(TcpMeshTest, TwoProcessesOfOneNumberAreRefused) {
  TcpListeners processes(3), copy(3);
  copy.addresses = processes.addresses;
  auto first = StartToConnect(processes, 0);
  auto second = StartToConnect(processes, 1, kTestSecret, milliseconds(1000));
  auto again = StartToConnect(copy, 1, kTestSecret, milliseconds(1000));
  EXPECT_EQ(first.get(), "two processes have number 1: number them from 0 to 2");
  EXPECT_NE(second.get(), "");
  EXPECT_NE(again.get(), "");
}

TEST(TcpMeshTest, ErrorsNameTheProcessAndItsAddress) {
  TcpListeners processes(2);
  EXPECT_EQ(StartToConnect(processes, 0, kTestSecret, milliseconds(50)).get(),
            fmt::format("process 1 at {} did not connect within 0.05 s: check that it runs "
                        "and can reach process 0 at {}",
                        processes.addresses[1], processes.addresses[0]));
  EXPECT_EQ(StartToConnect(processes, 1).get(),
            fmt::format("process 0 at {}: cannot connect: Connection refused: check that it "
                        "runs and that this machine can reach it",
                        processes.addresses[0]));
}

TEST(TcpMeshTest, ProcessThatDoesNotAnswerIsReported) {
  TcpListeners processes(2);
  EXPECT_EQ(StartToConnect(processes, 1, kTestSecret, milliseconds(50)).get(),
            fmt::format("process 0 at {} did not answer within 0.05 s: check that it runs "
                        "and can reach process 1 at {}",
                        processes.addresses[0], processes.addresses[1]));
}

TEST(TcpMeshTest, WrongArgumentsAreRefused) {
  const TcpListener listener = OpenTcpListener("127.0.0.1").value();
  const auto message = [&](const TcpRun& run) {
    return ConnectTcpMesh(listener, run).error().line();
  };
  EXPECT_EQ(message({2, {"a:1", "b:1"}, kTestSecret, ""}),
            "process 2: the addresses are of processes 0 to 1");
  EXPECT_EQ(message({1, {"a", "b:1"}, kTestSecret, ""}), "'a' is not an address: write NAME:PORT");
  EXPECT_EQ(message({0, {"a:1"}, "too short", ""}),
            "the run's secret has 9 bytes: use at least 16");
  const std::string unknown = message({1, {"no name:1", "b:1"}, kTestSecret, ""});
  EXPECT_TRUE(unknown.starts_with("process 0 at no name:1: cannot resolve 'no name': ")) << unknown;
}

}  // namespace
}  // namespace penstock
