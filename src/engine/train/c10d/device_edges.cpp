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

// An edge between this process and another one.
struct Edge {
  int from = 0, to = 0;
  int other = 0;
  int rank = 0;  // of this process among the two
};

// Makes the backend of an edge for tensors of the device. May throw std::exception.
using MakeBackend = std::function<c10::intrusive_ptr<c10d::Backend>(const Edge& edge)>;

Result<MakeBackend> ByPlugin(Collectives& all, C10dPlace& place) {
  PENSTOCK_TRY(place.store, ShareStore(all));
  PENSTOCK_TRY(DevicePlugin* const plugin, OnAll(all, OpenDevicePlugin(place.device)));
  return [plugin, store = place.store](const Edge& edge) {
    const std::string name = fmt::format("{} to {}", edge.from, edge.to);
    return plugin->MakeBackend(c10::make_intrusive<EdgeStore>(name, store), edge.rank, 2);
  };
}

Result<MakeBackend> ByTransfers(Collectives& all) {
  auto found = all.group()->FindDirectTransfers();
  if (!found) found.error().message = "transport: mpi: " + found.error().message;
  PENSTOCK_TRY(DirectTransfers* const transfers, OnAll(all, std::move(found)));
  return [transfers](const Edge& edge) {
    return MakeDirectBackend(*transfers, edge.other, edge.rank);
  };
}

Status AddEdges(ProcessGroup& processes, const std::string& transport,
                const MakeBackend& make_backend, C10dPlace& place) {
  const FrameEdges frames(processes);
  const auto group_of = [&](const Edge& edge) {
    auto group = c10::make_intrusive<c10d::ProcessGroup>(Store(), edge.rank, 2);
    // c10d takes two backends of the same type for one.
    using enum c10d::ProcessGroup::BackendType;
    group->setBackend(c10::kCPU, GLOO, frames.With(edge.other));
    group->setBackend(place.device.type(), CUSTOM, make_backend(edge));
    return group;
  };
  try {
    for (int other = 0; other < processes.processes(); ++other) {
      if (other == place.process) continue;
      const int rank = other > place.process ? 0 : 1;
      place.to[Index(other)] = group_of({place.process, other, other, rank});
      place.from[Index(other)] = group_of({other, place.process, other, rank});
    }
  } catch (const std::exception& error) {
    return MakeError(ErrorCode::kUnavailable, "transport: {}: {}", transport, ExceptionLine(error));
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
  place.machines = processes.machines();
  place.device = device;
  place.to.resize(Index(processes.processes()));
  place.from.resize(Index(processes.processes()));
  PENSTOCK_TRY(place.timeout, ProcessTimeout());
  PENSTOCK_TRY(const MakeBackend make_backend,
               transport == "mpi" ? ByTransfers(all) : ByPlugin(all, place));
  PENSTOCK_TRY_STATUS(all.All(AddEdges(processes, transport, make_backend, place)));
  return MakeC10dProcessGroup(std::move(place));
}

}  // namespace penstock
