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

// A connection that has not sent its whole hello. Strangers may connect, and must not delay others.
struct Stranger {
  Socket socket;
  Hello hello;
  std::size_t received = 0;
  bool ended = false;

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

  // A host that waits for one that accepts would deadlock if it did not accept meanwhile. So all
  // hellos are sent first and answers are read last.
  Result<std::vector<TcpPeer>> Connect() {
    for (int host = 0; host < run_.host; ++host) PENSTOCK_TRY_STATUS(ConnectTo(host));
    PENSTOCK_TRY_STATUS(AcceptHigher());
    for (int host = 0; host < run_.host; ++host) PENSTOCK_TRY_STATUS(ReadAnswer(host));
    peers_[run_.host].machine = run_.machine;
    return std::move(peers_);
  }

 private:
  std::string Name(int host) const {
    return fmt::format("host {} at {}", host, Printable(run_.addresses[host]));
  }

  Hello OwnHello(int to) const {
    return {
        kMagic, kVersion, hosts_, run_.host, to, PaddedText(run_.run), PaddedText(run_.machine)};
  }

  Status ConnectTo(int host) {
    PENSTOCK_TRY(const TcpAddress address, ParseTcpAddress(run_.addresses[host]));
    auto socket = ConnectTcp(address, deadline_);
    if (!socket) {
      return MakeError(socket.error().code,
                       "{}: {}: check that its process runs and that this machine can reach it",
                       Name(host), socket.error().message);
    }
    peers_[host].socket = std::move(*socket);
    const Hello hello = OwnHello(host);
    // An error shows when the answer is read.
    static_cast<void>(SendAll(peers_[host].socket, &hello, sizeof(hello)));
    return {};
  }

  Status ReadAnswer(int host) {
    Hello answer;
    if (!ReceiveAll(peers_[host].socket, &answer, sizeof(answer), deadline_)) {
      if (std::chrono::steady_clock::now() >= deadline_) return TimedOut(host, "does not answer");
      return MakeError(ErrorCode::kUnavailable,
                       "{} closed the connection: its process has ended, or belongs to another run",
                       Name(host));
    }
    PENSTOCK_TRY_STATUS(Check(answer, host));
    if (!IsOfThisRun(answer) || answer.from != host) {
      return MakeError(ErrorCode::kUnavailable,
                       "{} is not that host of this run: check the addresses", Name(host));
    }
    peers_[host].machine = Printable(UnpaddedText(answer.machine));
    return {};
  }

  Status AcceptHigher() {
    int missing = hosts_ - 1 - run_.host;
    while (missing > 0) {
      std::vector<pollfd> waits = {{listener_.socket.fd(), POLLIN, 0}};
      for (const Stranger& each : strangers_) waits.push_back({each.socket.fd(), POLLIN, 0});
      const int ready = poll(waits.data(), waits.size(), PollTime(deadline_));
      if (ready == 0) return TimedOut(FirstMissing(), "did not connect");
      if (ready < 0) continue;  // a signal
      for (std::size_t i = 0; i < strangers_.size(); ++i) {
        if (waits[i + 1].revents == 0) continue;
        strangers_[i].Receive();
        PENSTOCK_TRY(const bool joined, Join(strangers_[i]));
        if (joined) --missing;
      }
      std::erase_if(strangers_, [](const Stranger& each) { return each.ended; });
      if (waits[0].revents == 0) continue;
      PENSTOCK_TRY(Socket socket, AcceptTcp(listener_.socket));
      if (socket.is_open()) strangers_.push_back({std::move(socket), {}});
    }
    return {};
  }

  // Returns whether the stranger turned out to be a host of this run.
  Result<bool> Join(Stranger& stranger) {
    if (stranger.received < sizeof(Hello)) return false;
    stranger.ended = true;
    const Hello& hello = stranger.hello;
    if (!IsOfThisRun(hello)) return false;
    const Hello answer = OwnHello(hello.from);
    static_cast<void>(SendAll(stranger.socket, &answer, sizeof(answer)));
    PENSTOCK_TRY_STATUS(Check(hello, hello.from));
    if (hello.from <= run_.host || hello.from >= hosts_ || peers_[hello.from].socket.is_open()) {
      return InvalidArgument("two processes are host {}: number them from 0 to {}", hello.from,
                             hosts_ - 1);
    }
    peers_[hello.from] = {std::move(stranger.socket), Printable(UnpaddedText(hello.machine))};
    return true;
  }

  bool IsOfThisRun(const Hello& hello) const {
    return hello.magic == kMagic && hello.run == PaddedText(run_.run);
  }

  // Errors of hosts of this run that were started in another way than this one.
  Status Check(const Hello& hello, int from) const {
    if (!IsOfThisRun(hello)) return {};
    if (hello.version != kVersion) {
      return InvalidArgument(
          "host {} has version {} of the protocol between hosts and this host {}: use the same "
          "version of Penstock on all hosts",
          from, hello.version, kVersion);
    }
    if (hello.hosts != hosts_) {
      return InvalidArgument(
          "host {} has the addresses of {} hosts and this host {}: give all "
          "hosts the same addresses",
          from, hello.hosts, hosts_);
    }
    if (hello.to != run_.host) {
      return InvalidArgument(
          "host {} took this host {} for host {}: give all hosts the same "
          "addresses",
          from, run_.host, hello.to);
    }
    return {};
  }

  int FirstMissing() const {
    int host = run_.host + 1;
    while (peers_[host].socket.is_open()) ++host;
    return host;
  }

  tl::unexpected<Error> TimedOut(int host, std::string_view what) const {
    return MakeError(ErrorCode::kDeadlineExceeded,
                     "{} {} within {} s: check that its process runs and can reach {}", Name(host),
                     what, std::chrono::duration<double>(run_.limit).count(), Name(run_.host));
  }

  const TcpListener& listener_;
  const TcpRun& run_;
  const int hosts_;
  const TcpDeadline deadline_;
  std::vector<TcpPeer> peers_;
  std::vector<Stranger> strangers_;
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
