#include "tcp/tcp_mesh.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/index.h"
#include "base/text/quote.h"
#include "tcp/tcp_handshake.h"

namespace penstock {
namespace {

// Accepted connections without a hello so far, in addition to one of each process. The oldest ends,
// so that strangers cannot use up the files that the process may open.
constexpr std::ptrdiff_t kMostStrangers = 64;

// A connection within the handshake. Strangers may connect to the listener, and must not delay
// others.
struct Greeting {
  explicit Greeting(Socket connected, int to = -1) : socket(std::move(connected)), process(to) {}

  Socket socket;
  int process;  // to which this process has connected, or -1 if it accepted the connection
  TcpChallenge challenge;
  bool has_challenge = false;
  TcpHello own;
  TcpHello hello;
  std::size_t received = 0;  // bytes of the next block
  bool ended = false;

  // Receives what has arrived of a block. Returns whether it is whole.
  template <class Block>
  bool Receive(Block& block) {
    auto* const to = reinterpret_cast<std::byte*>(&block) + received;
    const ssize_t got = recv(socket.fd(), to, sizeof(block) - received, MSG_DONTWAIT);
    if (got > 0) received += static_cast<std::size_t>(got);
    ended = got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
    if (received < sizeof(block)) return false;
    received = 0;
    return true;
  }
  bool Send(const auto& block) { return SendAll(socket, &block, sizeof(block)); }
};

class Mesh {
 public:
  Mesh(const TcpListener& listener, const TcpRun& run)
      : listener_(listener),
        run_(run),
        prover_(run.secret),
        processes_(static_cast<int>(run.addresses.size())),
        limit_(run.limit),
        peers_(run.addresses.size()) {}

  Result<std::vector<TcpPeer>> Connect() {
    for (int process = 0; process < run_.process; ++process)
      PENSTOCK_TRY_STATUS(ConnectTo(process));
    for (int missing = processes_ - 1; missing > 0;) {
      PENSTOCK_TRY(const int joined, ReceiveBlocks());
      missing -= joined;
    }
    peers_[run_.process].machine = run_.machine;
    return std::move(peers_);
  }

 private:
  std::string Name(int process) const {
    return fmt::format("process {} at {}", process, Printable(run_.addresses[process]));
  }

  TcpHello OwnHello(const Socket& socket, int to) const {
    TcpHello hello;
    hello.processes = processes_;
    hello.from = run_.process;
    hello.to = to;
    hello.authenticate_frames = run_.authenticate_frames || !IsWithinMachine(socket) ? 1 : 0;
    hello.SetMachine(run_.machine);
    return hello;
  }

  Status ConnectTo(int process) {
    PENSTOCK_TRY(const TcpAddress address, ParseTcpAddress(run_.addresses[process]));
    auto socket = ConnectTcp(address, limit_);
    if (!socket) {
      return MakeError(socket.error().code,
                       "{}: {}: check that it runs and that this machine can reach it",
                       Name(process), socket.error().line());
    }
    greetings_.emplace_back(std::move(*socket), process);
    return {};
  }

  // Waits until something has arrived. Returns the number of processes that are connected by it.
  Result<int> ReceiveBlocks() {
    std::vector<pollfd> waits = {{listener_.socket.fd(), POLLIN, 0}};
    for (const Greeting& each : greetings_) waits.push_back({each.socket.fd(), POLLIN, 0});
    const int ready = poll(waits.data(), waits.size(), PollTime(limit_));
    if (limit_.IsOver()) return TimedOut();  // also while strangers keep it busy
    int joined = 0;
    for (std::size_t i = 0; ready > 0 && i < greetings_.size(); ++i) {
      if (waits[i + 1].revents == 0) continue;
      PENSTOCK_TRY(const bool joins, Continue(greetings_[i]));
      joined += joins ? 1 : 0;
    }
    std::erase_if(greetings_, [](const Greeting& each) { return each.ended; });
    if (ready > 0 && waits[0].revents != 0) PENSTOCK_TRY_STATUS(Challenge());
    return joined;
  }

  // Accepts a connection.
  Status Challenge() {
    PENSTOCK_TRY(Socket socket, AcceptTcp(listener_.socket));
    if (!socket.is_open()) return {};
    const auto is_accepted = [](const Greeting& each) { return each.process < 0; };
    if (std::ranges::count_if(greetings_, is_accepted) >= processes_ + kMostStrangers) {
      greetings_.erase(std::ranges::find_if(greetings_, is_accepted));
    }
    greetings_.emplace_back(std::move(socket));
    // If this fails, the connection ends before a hello.
    static_cast<void>(greetings_.back().Send(greetings_.back().challenge));
    return {};
  }

  // Reads what has arrived; true once the handshake is complete.
  Result<bool> Continue(Greeting& greeting) {
    if (greeting.process < 0) return TakeHello(greeting);
    return greeting.has_challenge ? TakeAnswer(greeting) : TakeChallenge(greeting);
  }

  Result<bool> TakeChallenge(Greeting& greeting) {
    TcpChallenge& challenge = greeting.challenge;
    if (!greeting.Receive(challenge)) return CheckOpen(greeting);
    if (challenge.magic != kTcpMagic) return OtherProcess(greeting.process);
    if (challenge.version != kTcpVersion) {
      return InvalidArgument(
          "{} has version {} of the protocol between processes and this process {}: use the same "
          "version "
          "of Penstock in all processes",
          Name(greeting.process), challenge.version, kTcpVersion);
    }
    greeting.has_challenge = true;
    greeting.own = OwnHello(greeting.socket, greeting.process);
    prover_.ProveConnecting(challenge, greeting.own);
    // If this fails, the connection ends before the other's hello.
    static_cast<void>(greeting.Send(greeting.own));
    return false;
  }

  // Handles the hello of a process to which this process connected.
  Result<bool> TakeAnswer(Greeting& greeting) {
    const TcpHello& answer = greeting.hello;
    if (!greeting.Receive(greeting.hello)) return CheckOpen(greeting);
    if (!prover_.IsProvenAccepting(greeting.challenge, greeting.own, answer) ||
        answer.from != greeting.process) {
      return OtherProcess(greeting.process);
    }
    PENSTOCK_TRY_STATUS(Check(answer));
    Join(greeting, greeting.own, answer);
    return true;
  }

  // Handles what was sent by someone who connected to this process. Whoever does not know the
  // secret is ignored.
  Result<bool> TakeHello(Greeting& greeting) {
    const TcpHello& hello = greeting.hello;
    if (!greeting.Receive(greeting.hello)) return false;
    if (!prover_.IsProvenConnecting(greeting.challenge, hello)) {
      greeting.ended = true;
      return false;
    }
    greeting.own = OwnHello(greeting.socket, hello.from);
    prover_.ProveAccepting(greeting.challenge, hello, greeting.own);
    static_cast<void>(greeting.Send(greeting.own));  // also an unsuitable process learns why
    PENSTOCK_TRY_STATUS(Check(hello));
    if (hello.from <= run_.process || hello.from >= processes_ ||
        peers_[hello.from].socket.is_open()) {
      return InvalidArgument("two processes have number {}: number them from 0 to {}", hello.from,
                             processes_ - 1);
    }
    Join(greeting, hello, greeting.own);
    return true;
  }

  void Join(Greeting& greeting, const TcpHello& connecting, const TcpHello& accepting) {
    TcpPeer& peer = peers_[greeting.hello.from];
    peer.socket = std::move(greeting.socket);
    peer.machine = Printable(greeting.hello.Machine());
    if (connecting.authenticate_frames != 0 || accepting.authenticate_frames != 0) {
      const bool has_connected = greeting.process >= 0;
      const auto tagger = [&](bool from_connecting) {
        return std::make_unique<BlockTagger>(
            prover_.FrameKey(from_connecting, greeting.challenge, connecting, accepting));
      };
      peer.sent = tagger(has_connected);
      peer.received = tagger(!has_connected);
    }
    greeting.ended = true;
  }

  // For a process to which this process connected. Returns false while nothing is wrong.
  Result<bool> CheckOpen(const Greeting& greeting) const {
    if (!greeting.ended) return false;
    return MakeError(ErrorCode::kUnavailable,
                     "{} closed the connection: it has ended, or has another secret",
                     Name(greeting.process));
  }

  tl::unexpected<Error> OtherProcess(int process) const {
    return MakeError(ErrorCode::kUnavailable,
                     "{} is not that process of this run: check the addresses and the secret",
                     Name(process));
  }

  // Errors of processes of this run that were started in another way than this one.
  Status Check(const TcpHello& hello) const {
    if (hello.processes == processes_ && hello.to == run_.process) return {};
    return InvalidArgument(
        "process {} has other addresses than this process: give all processes the same ones",
        hello.from);
  }

  tl::unexpected<Error> TimedOut() const {
    int process = 0;
    while (process == run_.process || peers_[process].socket.is_open()) ++process;
    return MakeError(ErrorCode::kDeadlineExceeded,
                     "{} {} within {} s: check that it runs and can reach {}", Name(process),
                     process < run_.process ? "did not answer" : "did not connect",
                     std::chrono::duration<double>(run_.limit).count(), Name(run_.process));
  }

  const TcpListener& listener_;
  const TcpRun& run_;
  const TcpProver prover_;
  const int processes_;
  OwnTimeLimit limit_;
  std::vector<TcpPeer> peers_;
  std::vector<Greeting> greetings_;
};

}  // namespace

Result<std::vector<TcpPeer>> ConnectTcpMesh(const TcpListener& listener, const TcpRun& run) {
  if (run.process < 0 || Index(run.process) >= run.addresses.size()) {
    return InvalidArgument("process {}: the addresses are of processes 0 to {}", run.process,
                           std::ssize(run.addresses) - 1);
  }
  if (run.secret.size() < kLeastSecret) {
    return InvalidArgument("the run's secret has {} bytes: use at least {}", run.secret.size(),
                           kLeastSecret);
  }
  return Mesh(listener, run).Connect();
}

}  // namespace penstock
