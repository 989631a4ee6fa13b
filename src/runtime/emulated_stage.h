// EmulatedStage: takes the cost model's time without using a core, so that many ranks run the real
// executor and transport on few cores. EmulatedLink: the same for transfers.
//
// Units: costs are in units of `unit` time. A message carries who made it, and a stage that gets
// another one than it should throws: a run proves its own delivery.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/program.h"
#include "runtime/stage.h"
#include "runtime/transport.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

struct EmulationOptions {
  std::chrono::nanoseconds unit{1000000};  // one unit of cost time
  double activation_bytes = 1 << 20;       // one unit of cost memory
  std::chrono::nanoseconds spin{20000};    // of the end of a sleep, for an exact deadline
};

// One emulated stage for each of the schedule's. `costs` has one entry a stage.
std::vector<std::unique_ptr<Stage>> MakeEmulatedStages(const Schedule& schedule, const Costs& costs,
                                                       const EmulationOptions& options = {});

// Delays every message between two ranks by `latency` and occupies nobody. For schedules with a
// flush: a sender that gets a round ahead would overwrite an arrival time.
class EmulatedLink final : public Transport {
 public:
  // `inner` must outlive the link.
  EmulatedLink(const MessageMap& messages, Transport& inner, std::chrono::nanoseconds latency);

  void Send(int slot, std::int64_t round, Message message) override;
  [[nodiscard]] bool Receive(int slot, std::int64_t round, Message& message) override;

 private:
  void WakeAll() override { inner_.Abort(reason()); }

  Transport& inner_;
  std::chrono::nanoseconds latency_;
  std::vector<std::int64_t> arrival_ns_;  // by slot; 0 inside a rank
  std::vector<char> crosses_;             // by slot: whether it goes to another rank
};

}  // namespace penstock
