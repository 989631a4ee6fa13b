#include "runtime/emulation/emulation.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/index.h"
#include "runtime/emulation/device.h"
#include "runtime/emulation/emulated_stage.h"
#include "runtime/emulation/gradient_gate.h"
#include "runtime/emulation/price_list.h"
#include "runtime/program.h"
#include "runtime/transports/threads.h"

namespace penstock {
namespace {

// The threads transport with a latency for messages between ranks.
class EmulatedTransport final : public Transport {
 public:
  EmulatedTransport(const PriceList& prices, std::vector<EmulatedDevice>& devices,
                    GradientGate& gate)
      : messages_(prices.schedule()),
        inner_(messages_),
        latency_(prices.latency()),
        devices_(devices),
        gate_(gate) {}

  void Send(int slot, std::int64_t round, Message message) override {
    if (EmulatedPayload* payload = EmulatedPayload::Of(message);
        payload != nullptr && messages_.from_rank(slot) != messages_.to_rank(slot)) {
      payload->ready += latency_;
      sent_.fetch_add(1, std::memory_order_relaxed);
    }
    inner_.Send(slot, round, std::move(message));
  }

  [[nodiscard]] bool Receive(int slot, std::int64_t round, Message& message) override {
    if (!inner_.Receive(slot, round, message)) return false;
    const EmulatedPayload* payload = EmulatedPayload::Of(message);
    if (payload == nullptr) return true;
    EmulatedDevice& device = devices_[messages_.to_rank(slot)];
    device.NotBefore(payload->ready);
    return device.AwaitStart();
  }

  std::int64_t sent() const { return sent_.load(); }

 private:
  void WakeAll() override {
    inner_.Abort(reason());
    gate_.Stop();
    for (EmulatedDevice& device : devices_) device.Stop();
  }

  const MessageMap messages_;
  ThreadTransport inner_;
  const std::int64_t latency_;
  std::vector<EmulatedDevice>& devices_;
  GradientGate& gate_;
  std::atomic<std::int64_t> sent_{0};
};

}  // namespace

class Emulation::Machine {
 public:
  Machine(const Schedule& schedule, const Costs& costs, const EmulationOptions& options)
      : prices(schedule, costs, options),
        devices(Index(schedule.ranks())),
        gate(prices),
        transport(prices, devices, gate) {
    const EmulatedStage::Shared shared{&prices, &gate, &origin};
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      const std::size_t rank = schedule.placement.rank_of(stage);
      stages.push_back(std::make_unique<EmulatedStage>(shared, devices[rank], stage));
    }
  }

  const PriceList prices;
  std::vector<EmulatedDevice> devices;  // by rank
  GradientGate gate;
  std::atomic<std::int64_t> origin{0};
  std::vector<std::unique_ptr<EmulatedStage>> stages;
  EmulatedTransport transport;  // last: it may still own messages of the stages
};

Emulation::Emulation(const Schedule& schedule, const Costs& costs, const EmulationOptions& options)
    : machine_(std::make_unique<Machine>(schedule, costs, options)) {
  for (const auto& stage : machine_->stages) stage_pointers_.push_back(stage.get());
}

Emulation::~Emulation() = default;

Transport& Emulation::transport() { return machine_->transport; }

std::int64_t Emulation::start() const { return machine_->origin.load(); }

std::int64_t Emulation::PeakBytes(int rank) const {
  return machine_->prices.Bytes(machine_->devices[rank].Peak());
}

std::vector<Span> Emulation::DueSpans(int rank) const {
  std::vector<Span> spans;
  const auto units = [&](std::int64_t time) { return machine_->prices.Units(time - start()); };
  for (const auto& [start, end] : machine_->devices[rank].runs()) {
    spans.push_back({units(start), units(end)});
  }
  return spans;
}

double Emulation::LastTransferEnd(int rank) const {
  return machine_->prices.Units(machine_->devices[rank].LastTransferEnd() - start());
}

std::int64_t Emulation::messages() const { return machine_->transport.sent(); }

std::chrono::nanoseconds Emulation::worst_lateness() const {
  std::int64_t worst = 0;
  for (const EmulatedDevice& device : machine_->devices) {
    worst = std::max(worst, device.worst_lateness());
  }
  return std::chrono::nanoseconds(worst);
}

}  // namespace penstock
