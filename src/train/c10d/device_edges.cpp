#include "train/c10d/device_edges.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "base/exception_line.h"
#include "base/index.h"
#include "graph/device/device_plugin.h"
#include "runtime/processes/collectives.h"
#include "runtime/processes/process_timeout.h"
#include "train/c10d/c10d_process_group.h"
#include "train/c10d/direct_backend.h"
#include "train/c10d/frame_edges.h"

namespace penstock {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;

// What the two processes of an edge store. A connection answers one question at a time, so a wait
// of one edge for another process must not keep it: the other process may wait for another edge.
class EdgeStore final : public c10d::PrefixStore {
 public:
  using c10d::PrefixStore::PrefixStore;

  std::vector<std::uint8_t> get(const std::string& key) override {
    wait({key}, getTimeout());
    return c10d::PrefixStore::get(key);
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!check(keys)) {
      TORCH_CHECK(std::chrono::steady_clock::now() < deadline, "no answer of the other process");
      std::this_thread::sleep_for(kLook);
    }
  }

 private:
  static constexpr std::chrono::milliseconds kLook{2};
};

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

// By which the processes reach process 0, which decides: what launchers of PyTorch set, or its name
// if they are on several machines.
Result<std::string> LeadersAddress(Collectives& processes) {
  PENSTOCK_TRY(const std::vector<std::string> names, processes.AllGather(HostName()));
  const bool is_one_machine = std::ranges::count(names, names.front()) == std::ssize(names);
  std::string address = is_one_machine ? "localhost" : names.front();
  if (const char* const given = std::getenv("MASTER_ADDR"); given != nullptr) address = given;
  return processes.FromLeader(std::move(address));
}

// Through which the backends of the processes find each other. Throws std::exception.
Store ConnectStore(const std::string& host, std::uint16_t port, bool listens) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = listens;
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

Result<Store> ShareStore(Collectives& processes) {
  Store store;
  const auto connect = [&](const std::string& host, std::uint16_t port) -> Status {
    try {
      store = ConnectStore(host, port, processes.leads());
    } catch (const std::exception& error) {
      return MakeError(ErrorCode::kUnavailable, "transport: c10d: {}", ExceptionLine(error));
    }
    return {};
  };
  PENSTOCK_TRY(const std::string address, LeadersAddress(processes));
  Status status;
  std::string port;  // empty if the leader has none
  if (processes.leads()) {
    status = connect("localhost", 0);
    if (status) port = std::to_string(static_cast<const c10d::TCPStore&>(*store).getPort());
  }
  PENSTOCK_TRY(port, processes.FromLeader(std::move(port)));
  if (!processes.leads() && !port.empty()) {
    status = connect(address, static_cast<std::uint16_t>(std::stoi(port)));
  }
  PENSTOCK_TRY_STATUS(processes.All(status));
  return store;
}

// Makes the backend for tensors of the device of an edge between two processes, one of which is
// this one, with this process's rank among the two. May throw std::exception.
using MakeBackend = std::function<c10::intrusive_ptr<c10d::Backend>(int from, int to, int rank)>;

int OtherOf(int process, int from, int to) { return from == process ? to : from; }

Result<MakeBackend> ByPlugin(Collectives& all, C10dPlace& place) {
  PENSTOCK_TRY(place.store, ShareStore(all));
  auto plugin = OpenDevicePlugin(place.device);
  PENSTOCK_TRY_STATUS(all.All(plugin ? Status() : tl::unexpected(plugin.error())));
  return [plugin = *plugin, store = place.store](int from, int to, int rank) {
    const Store edge = c10::make_intrusive<EdgeStore>(fmt::format("{} to {}", from, to), store);
    return plugin->MakeBackend(edge, rank, 2);
  };
}

Result<MakeBackend> ByTransfers(Collectives& all, int process) {
  auto found = all.group()->FindDirectTransfers();
  if (!found) found.error().message = "transport: mpi: " + found.error().message;
  PENSTOCK_TRY_STATUS(all.All(found ? Status() : tl::unexpected(found.error())));
  return [transfers = *found, process](int from, int to, int rank) {
    return MakeDirectBackend(*transfers, OtherOf(process, from, to), rank);
  };
}

Status AddEdges(ProcessGroup& processes, const MakeBackend& make_backend, C10dPlace& place) {
  const FrameEdges frames(processes);
  const auto edge = [&](int from, int to) {
    const int other = OtherOf(place.process, from, to);
    const int rank = other > place.process ? 0 : 1;
    auto group = c10::make_intrusive<c10d::ProcessGroup>(Store(), rank, 2);
    // c10d takes two backends of the same type for one.
    using enum c10d::ProcessGroup::BackendType;
    group->setBackend(c10::kCPU, GLOO, frames.With(other));
    group->setBackend(place.device.type(), CUSTOM, make_backend(from, to, rank));
    return group;
  };
  try {
    for (int other = 0; other < processes.processes(); ++other) {
      if (other == place.process) continue;
      place.to[Index(other)] = edge(place.process, other);
      place.from[Index(other)] = edge(other, place.process);
    }
  } catch (const std::exception& error) {
    return MakeError(ErrorCode::kUnavailable, "transport: {}", ExceptionLine(error));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ProcessGroup>> ConnectByDevice(ProcessGroup& processes, c10::Device device,
                                                      const std::string& transport) {
  if (device.is_cpu()) {
    return InvalidArgument("transport: {} moves data of a device, but device is cpu: leave it out",
                           transport);
  }
  Collectives all(&processes);
  C10dPlace place;
  place.process = processes.process();
  place.device = device;
  place.to.resize(Index(processes.processes()));
  place.from.resize(Index(processes.processes()));
  PENSTOCK_TRY(place.timeout, ProcessTimeout());
  PENSTOCK_TRY(const MakeBackend make_backend,
               transport == "mpi" ? ByTransfers(all, place.process) : ByPlugin(all, place));
  PENSTOCK_TRY_STATUS(all.All(AddEdges(processes, make_backend, place)));
  return MakeC10dProcessGroup(std::move(place));
}

}  // namespace penstock
