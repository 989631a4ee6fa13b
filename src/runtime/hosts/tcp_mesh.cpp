#include "runtime/hosts/tcp_mesh.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/index.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

using TcpText = std::array<char, 64>;  // padded with zeros

constexpr std::uint64_t kMagic = 0x6b636f74736e6550;  // "Penstock" where bytes have our order
constexpr std::uint32_t kVersion = 1;                 // of the hello and the frames

// The first bytes in both directions of a connection. Its size is the same in all versions.
struct Hello {
  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::int32_t hosts = 0;
  std::int32_t from = 0;  // host
  std::int32_t to = 0;    // host
  TcpText run{};
  TcpText machine{};
};
static_assert(sizeof(Hello) == 152);

TcpText PaddedText(std::string_view text) {
  TcpText padded{};
  std::copy_n(text.begin(), std::min(text.size(), padded.size()), padded.begin());
  return padded;
}

std::string UnpaddedText(const TcpText& padded) {
  return {padded.data(), strnlen(padded.data(), padded.size())};
}

// A connection whose hello has not arrived yet. Strangers may connect to the listener, and must not
// delay others.
struct Greeting {
  Socket socket;
  int host = -1;  // to which this host has connected, or -1 if it accepted the connection
  Hello hello{};
  std::size_t received = 0;
  bool ended = false;

  bool is_whole() const { return received == sizeof(hello); }
  // Receives what has arrived.
  void Receive() {
    auto* const to = reinterpret_cast<std::byte*>(&hello) + received;
    const ssize_t got = recv(socket.fd(), to, sizeof(hello) - received, MSG_DONTWAIT);
    if (got > 0) received += static_cast<std::size_t>(got);
    ended = got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
  }
};

class Mesh {
 public:
  Mesh(const TcpListener& listener, const TcpRun& run)
      : listener_(listener),
        run_(run),
        hosts_(static_cast<int>(run.addresses.size())),
        deadline_(std::chrono::steady_clock::now() + run.limit),
        peers_(run.addresses.size()) {}

  Result<std::vector<TcpPeer>> Connect() {
    for (int host = 0; host < run_.host; ++host) PENSTOCK_TRY_STATUS(ConnectTo(host));
    for (int missing = hosts_ - 1; missing > 0;) {
      PENSTOCK_TRY(const int joined, ReceiveHellos());
      missing -= joined;
    }
    peers_[run_.host].machine = run_.machine;
    return std::move(peers_);
  }

 private:
  std::string Name(int host) const {
    return fmt::format("host {} at {}", host, Printable(run_.addresses[host]));
  }

  void SendHello(const Socket& socket, int to) const {
    const Hello hello{
        kMagic, kVersion, hosts_, run_.host, to, PaddedText(run_.run), PaddedText(run_.machine)};
    // If this fails, the connection ends before the other's hello.
    static_cast<void>(SendAll(socket, &hello, sizeof(hello)));
  }

  Status ConnectTo(int host) {
    PENSTOCK_TRY(const TcpAddress address, ParseTcpAddress(run_.addresses[host]));
    auto socket = ConnectTcp(address, deadline_);
    if (!socket) {
      return MakeError(socket.error().code,
                       "{}: {}: check that its process runs and that this machine can reach it",
                       Name(host), socket.error().message);
    }
    SendHello(*socket, host);
    greetings_.push_back({std::move(*socket), host});
    return {};
  }

  // Waits until something has arrived. Returns the number of hosts that are connected by it.
  Result<int> ReceiveHellos() {
    std::vector<pollfd> waits = {{listener_.socket.fd(), POLLIN, 0}};
    for (const Greeting& each : greetings_) waits.push_back({each.socket.fd(), POLLIN, 0});
    const int ready = poll(waits.data(), waits.size(), PollTime(deadline_));
    if (ready == 0) return TimedOut();
    int joined = 0;
    for (std::size_t i = 0; ready > 0 && i < greetings_.size(); ++i) {
      if (waits[i + 1].revents == 0) continue;
      greetings_[i].Receive();
      PENSTOCK_TRY(const bool joins,
                   greetings_[i].host < 0 ? Accept(greetings_[i]) : TakeAnswer(greetings_[i]));
      joined += joins ? 1 : 0;
    }
    std::erase_if(greetings_, [](const Greeting& each) { return each.ended; });
    if (ready > 0 && waits[0].revents != 0) {
      PENSTOCK_TRY(Socket socket, AcceptTcp(listener_.socket));
      if (socket.is_open()) greetings_.push_back({std::move(socket)});
    }
    return joined;
  }

  // Handles what a host has answered to which this host connected. Returns whether it is connected.
  Result<bool> TakeAnswer(Greeting& greeting) {
    const int host = greeting.host;
    if (!greeting.is_whole()) {
      if (!greeting.ended) return false;
      return MakeError(ErrorCode::kUnavailable,
                       "{} closed the connection: its process has ended, or belongs to another run",
                       Name(host));
    }
    const Hello& answer = greeting.hello;
    if (!IsOfThisRun(answer) || answer.from != host) {
      return MakeError(ErrorCode::kUnavailable,
                       "{} is not that host of this run: check the addresses", Name(host));
    }
    PENSTOCK_TRY_STATUS(Check(answer));
    Join(greeting);
    return true;
  }

  // Handles what was sent by someone who connected to this host. Returns whether it is a host of
  // this run.
  Result<bool> Accept(Greeting& greeting) {
    const Hello& hello = greeting.hello;
    if (!greeting.is_whole()) return false;
    if (!IsOfThisRun(hello)) {
      greeting.ended = true;
      return false;
    }
    SendHello(greeting.socket, hello.from);  // also an unsuitable host learns why
    PENSTOCK_TRY_STATUS(Check(hello));
    if (hello.from <= run_.host || hello.from >= hosts_ || peers_[hello.from].socket.is_open()) {
      return InvalidArgument("two processes are host {}: number them from 0 to {}", hello.from,
                             hosts_ - 1);
    }
    Join(greeting);
    return true;
  }

  void Join(Greeting& greeting) {
    peers_[greeting.hello.from] = {std::move(greeting.socket),
                                   Printable(UnpaddedText(greeting.hello.machine))};
    greeting.ended = true;
  }

  bool IsOfThisRun(const Hello& hello) const {
    return hello.magic == kMagic && hello.run == PaddedText(run_.run);
  }

  // Errors of hosts of this run that were started in another way than this one.
  Status Check(const Hello& hello) const {
    if (hello.version != kVersion) {
      return InvalidArgument(
          "host {} has version {} of the protocol between hosts and this host {}: use the same "
          "version of Penstock on all hosts",
          hello.from, hello.version, kVersion);
    }
    if (hello.hosts != hosts_ || hello.to != run_.host) {
      return InvalidArgument(
          "host {} has other addresses than this host: give all hosts the same ones", hello.from);
    }
    return {};
  }

  tl::unexpected<Error> TimedOut() const {
    int host = 0;
    while (host == run_.host || peers_[host].socket.is_open()) ++host;
    return MakeError(ErrorCode::kDeadlineExceeded,
                     "{} {} within {} s: check that its process runs and can reach {}", Name(host),
                     host < run_.host ? "did not answer" : "did not connect",
                     std::chrono::duration<double>(run_.limit).count(), Name(run_.host));
  }

  const TcpListener& listener_;
  const TcpRun& run_;
  const int hosts_;
  const TcpDeadline deadline_;
  std::vector<TcpPeer> peers_;
  std::vector<Greeting> greetings_;
};

}  // namespace

Result<std::vector<TcpPeer>> ConnectTcpMesh(const TcpListener& listener, const TcpRun& run) {
  if (run.host < 0 || Index(run.host) >= run.addresses.size()) {
    return InvalidArgument("host {}: the addresses are of hosts 0 to {}", run.host,
                           std::ssize(run.addresses) - 1);
  }
  if (run.run.size() > TcpText().size()) {
    return InvalidArgument("the run's identifier has {} bytes: use at most {}", run.run.size(),
                           TcpText().size());
  }
  return Mesh(listener, run).Connect();
}

}  // namespace penstock
