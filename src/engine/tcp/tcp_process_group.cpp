#include "tcp/tcp_process_group.h"

#include <atomic>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "runtime/processes/process_timeout.h"
#include "tcp/tcp_connection.h"

namespace penstock {
namespace {

class TcpProcessGroup final : public ProcessGroup {
 public:
  TcpProcessGroup(int process, std::vector<TcpPeer> peers, std::chrono::duration<double> timeout)
      : ProcessGroup(process, static_cast<int>(peers.size()), MachinesOf(peers)),
        timeout_(timeout) {
    for (TcpPeer& peer : peers) {
      const bool is_other = peer.socket.is_open();
      connections_.push_back(is_other ? std::make_unique<TcpConnection>(std::move(peer), timeout)
                                      : nullptr);
    }
    // A process that is lost at once is reported to all others, so all connections exist before.
    for (int other = 0; other < this->processes(); ++other) {
      if (connections_[other]) connections_[other]->Start(HandlersOf(other));
    }
  }

  ~TcpProcessGroup() override {
    constexpr std::chrono::seconds kPatience{5};
    is_ending_.store(true);
    ForEach([](TcpConnection& each) { each.EndSending(); });
    if (!aborted()) ForEach([](TcpConnection& each) { each.WaitUntilSent(); });
    OwnTimeLimit limit(kPatience);
    ForEach([&](TcpConnection& each) { each.Close(limit); });
  }

 private:
  static std::vector<std::string> MachinesOf(const std::vector<TcpPeer>& peers) {
    std::vector<std::string> machines;
    for (const TcpPeer& peer : peers) machines.push_back(peer.machine);
    return machines;
  }

  TcpConnection::Handlers HandlersOf(int other) {
    return {[this, other](std::int64_t channel, const FrameTag& tag, Message message) {
              Deliver(other, channel, tag, std::move(message));
            },
            [this](const Error& error) {
              Abort({error.code, fmt::format("{}: {}", NameOf(process()), error.line())});
            },
            [this, other](TcpEnd end) { HandleEnd(other, end); }};
  }

  void HandleEnd(int other, TcpEnd end) {
    if (is_ending_.load()) return;
    if (end == TcpEnd::kSilent) {
      Lose(other, fmt::format("it has not responded for {} s", timeout_.count()));
    } else if (end == TcpEnd::kForged) {
      Lose(other, "its connection delivers bytes that it has not sent");
    } else {
      Lose(other);
    }
  }

  void SendFrame(int to, std::int64_t channel, const FrameTag& tag, Message message) override {
    connections_[to]->Send(channel, tag, std::move(message));
  }

  template <class Function>
  void ForEach(Function&& function) {
    for (const auto& connection : connections_) {
      if (connection) function(*connection);
    }
  }

  const std::chrono::duration<double> timeout_;
  std::atomic<bool> is_ending_{false};
  std::vector<std::unique_ptr<TcpConnection>> connections_;  // by process; null for this one
};

}  // namespace

Result<std::unique_ptr<ProcessGroup>> ConnectTcpProcesses(TcpListener listener, const TcpRun& run) {
  PENSTOCK_TRY(const std::chrono::duration<double> timeout, ProcessTimeout());
  PENSTOCK_TRY(std::vector<TcpPeer> peers, ConnectTcpMesh(listener, run));
  return std::make_unique<TcpProcessGroup>(run.process, std::move(peers), timeout);
}

}  // namespace penstock
