// Strangers who connect to the processes of a run, take the place of one, or change what is in
// flight.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>
#include <random>
#include <thread>

#include "tcp/tcp_frame.h"
#include "tcp/tcp_handshake.h"
#include "tests/engine/tcp/tcp_loopback.h"
#include "tests/results.h"

namespace penstock {
namespace {

// Waits for a connection.
Socket AcceptOne(const TcpListener& listener) {
  Socket socket;
  while (!socket.is_open()) socket = AcceptTcp(listener.socket).value();
  return socket;
}

// Reads so many bytes, or less at the end of the connection.
std::string Receive(const Socket& socket, std::size_t bytes) {
  std::string text(bytes, '\0');
  std::size_t received = 0;
  while (received < bytes) {
    const ssize_t got = recv(socket.fd(), text.data() + received, bytes - received, 0);
    if (got <= 0) break;
    received += static_cast<std::size_t>(got);
  }
  text.resize(received);
  return text;
}

void SendText(const Socket& socket, std::string_view text) {
  static_cast<void>(SendAll(socket, text.data(), text.size()));
}

void ExpectBothConnect(TcpListeners& processes) {
  auto first = StartToConnect(processes, 0);
  EXPECT_EQ(StartToConnect(processes, 1).get(), "");
  EXPECT_EQ(first.get(), "");
}

TEST(TcpHostileTest, NoiseOfStrangersDoesNotDisturbARun) {
  TcpListeners processes(2);
  std::mt19937 random(7);
  std::vector<Socket> strangers;
  const TcpChallenge challenge;
  for (const std::size_t bytes : {0U, 1U, 47U, 48U, 143U, 144U, 145U, 100'000U}) {
    std::string noise(bytes, '\0');
    for (char& each : noise) each = static_cast<char>(random());
    for (const std::string_view start : {std::string_view(), BytesOf(challenge)}) {
      strangers.push_back(ConnectToListener(processes.addresses[0]));
      SendText(strangers.back(), std::string(start) + noise);
      if (bytes % 2 == 1) shutdown(strangers.back().fd(), SHUT_WR);
    }
  }
  ConnectToListener(processes.addresses[0]);  // closes at once
  ExpectBothConnect(processes);
}

TEST(TcpHostileTest, ManySilentStrangersDoNotDisturbARun) {
  TcpListeners processes(2);
  std::vector<Socket> strangers;
  auto first = StartToConnect(processes, 0);
  for (int i = 0; i < 200; ++i) strangers.push_back(ConnectToListener(processes.addresses[0]));
  EXPECT_EQ(StartToConnect(processes, 1).get(), "");
  EXPECT_EQ(first.get(), "");
}

// What process 1 sends first, to a stranger in the place of process 0.
std::string StolenHello() {
  const TcpListener stranger = OpenTcpListener("127.0.0.1").value();
  TcpListeners processes(2);
  processes.addresses[0] = stranger.address;
  auto second = StartToConnect(processes, 1);
  std::string stolen;
  {
    const Socket socket = AcceptOne(stranger);
    SendText(socket, BytesOf(TcpChallenge()));
    stolen = Receive(socket, sizeof(TcpHello));
  }
  EXPECT_NE(second.get(), "");
  return stolen;
}

TEST(TcpHostileTest, ReplayedHelloIsIgnored) {
  const std::string stolen = StolenHello();
  ASSERT_EQ(stolen.size(), sizeof(TcpHello));
  TcpListeners processes(2);
  auto first = StartToConnect(processes, 0);
  const Socket stranger = ConnectToListener(processes.addresses[0]);
  SendText(stranger, stolen);
  EXPECT_EQ(Receive(stranger, 1000).size(), sizeof(TcpChallenge));  // and then the end
  EXPECT_EQ(StartToConnect(processes, 1).get(), "");
  EXPECT_EQ(first.get(), "");
}

TEST(TcpHostileTest, NothingThatIsSentContainsTheSecret) {
  EXPECT_FALSE(Contains(StolenHello(), kTestSecret));
}

// Whoever listens in the place of process 0 cannot answer.
TEST(TcpHostileTest, StrangerInThePlaceOfAProcessIsRefused) {
  const auto error_after = [](const std::function<std::string(std::string hello)>& answer) {
    const TcpListener stranger = OpenTcpListener("127.0.0.1").value();
    TcpListeners processes(2);
    processes.addresses[0] = stranger.address;
    auto second = StartToConnect(processes, 1);
    const Socket socket = AcceptOne(stranger);
    SendText(socket, BytesOf(TcpChallenge()));
    SendText(socket, answer(Receive(socket, sizeof(TcpHello))));
    const std::string error = second.get();
    EXPECT_TRUE(error.starts_with(fmt::format("process 0 at {} ", stranger.address)));
    return error.substr(error.find(' ', std::string_view("process 0 at ").size()));
  };
  const std::string refused =
      " is not that process of this run: check the addresses and the secret";
  EXPECT_EQ(error_after([](const std::string& hello) { return hello; }), refused);
  EXPECT_EQ(error_after([](std::string) { return std::string(sizeof(TcpHello), 'x'); }), refused);
  EXPECT_EQ(error_after([](std::string) { return std::string(BytesOf(TcpHello())); }), refused);
}

TEST(TcpHostileTest, OtherProtocolsAreNamed) {
  const auto error_after = [](std::string_view challenge) {
    const TcpListener stranger = OpenTcpListener("127.0.0.1").value();
    TcpListeners processes(2);
    processes.addresses[0] = stranger.address;
    auto second = StartToConnect(processes, 1);
    const Socket socket = AcceptOne(stranger);
    SendText(socket, challenge);
    return second.get();
  };
  TcpChallenge later;
  later.version = 3;
  EXPECT_TRUE(Contains(error_after(BytesOf(later)), "has version 3 of the protocol"));
  EXPECT_TRUE(Contains(error_after("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3 and more text"),
                       "not that process"));
}

// Forwards one connection to `to` in both directions. Changes the `bytes` bytes that follow the
// hello of whoever connects.
class Relay {
 public:
  Relay(std::string to, std::size_t bytes, std::function<std::string(std::string)> change)
      : thread_([this, to = std::move(to), bytes, change = std::move(change)] {
          const Socket from_socket = AcceptOne(listener_), to_socket = ConnectToListener(to);
          std::thread back([&] { ForwardAll(to_socket, from_socket); });
          SendText(to_socket, Receive(from_socket, sizeof(TcpHello)));
          SendText(to_socket, change(Receive(from_socket, bytes)));
          ForwardAll(from_socket, to_socket);
          back.join();
        }) {}
  ~Relay() { thread_.join(); }

  const std::string& address() const { return listener_.address; }

 private:
  static void ForwardAll(const Socket& from, const Socket& to) {
    for (std::string text = Receive(from, 1); !text.empty(); text = Receive(from, 1)) {
      SendText(to, text);
    }
    shutdown(to.fd(), SHUT_WR);
  }

  const TcpListener listener_ = OpenTcpListener("127.0.0.1").value();
  std::thread thread_;
};

constexpr std::size_t kPayload = 100;
constexpr std::size_t kTag = sizeof(BlockTagger::Tag);
constexpr std::size_t kFrame = sizeof(TcpFrameHeader) + kTag + kPayload + kTag;

// Process 1 sends three frames to process 0 over a relay. Returns how many arrive, and the error
// then.
std::pair<int, std::string> SendChanged(const std::function<std::string(std::string)>& change) {
  TcpListeners processes(2);
  const Relay relay(processes.addresses[0], 3 * kFrame, change);
  const auto connect = [&](int process) {
    return std::async(std::launch::async, [&, process] {
      TcpRun run{process, {relay.address(), processes.addresses[1]}, kTestSecret, ""};
      run.authenticate_frames = process == 0;  // one end suffices
      return processes.Connect(run).value();
    });
  };
  auto second = connect(1);
  const auto receives = connect(0).get();
  auto sends = second.get();
  int frames = 0;
  std::promise<std::string> aborted;
  Channel to(*receives), from(*sends);
  to.Open(
      [&](int, const FrameTag& tag, const Message& message) {
        EXPECT_EQ(tag.number, frames);
        EXPECT_EQ(TextOf(message), std::string(kPayload, static_cast<char>('a' + frames)));
        ++frames;
      },
      [&](const Error& reason) { aborted.set_value(reason.line()); });
  for (int i = 0; i < 3; ++i) {
    from.Send(0, {0, 0, i}, CopyToMessage(std::string(kPayload, static_cast<char>('a' + i))));
  }
  std::string error = aborted.get_future().get();
  return {frames, std::move(error)};
}

TEST(TcpHostileTest, ChangedFramesEndTheRun) {
  const std::string_view error =
      "process 1 is gone: its connection delivers bytes that it has not sent";
  const auto first = [](const std::string& all) { return all.substr(0, kFrame); };
  const auto from = [](const std::string& all, std::size_t frame) {
    return all.substr(frame * kFrame);
  };
  // A bit of every part of the second frame.
  for (const std::size_t at : {0U, 8U, 16U, 24U, 30U, 33U, 48U, 147U, 150U}) {
    const auto got = SendChanged([&](std::string all) {
      all[kFrame + at] ^= 1;
      return all;
    });
    EXPECT_EQ(got, std::pair(1, std::string(error))) << at;
  }
  const std::pair<int, std::string> one(1, error);
  EXPECT_EQ(SendChanged([&](auto all) { return first(all) + from(all, 2); }), one) << "left out";
  EXPECT_EQ(SendChanged([&](auto all) { return first(all) + all; }), one) << "repeated";
  EXPECT_EQ(SendChanged([&](auto all) {
              return first(all) + from(all, 2) + from(all, 1).substr(0, kFrame);
            }),
            one)
      << "in another order";
  EXPECT_EQ(SendChanged(
                [&](auto all) { return first(all) + std::string(kFrame, '\x7f') + from(all, 1); }),
            one)
      << "added";
}

}  // namespace
}  // namespace penstock
