#include "train/c10d/c10d_process_group.h"

#include <exception>
#include <memory>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>

#include "base/index.h"
#include "runtime/processes/process_timeout.h"
#include "train/c10d/edge.h"

namespace penstock {
namespace {

constexpr int kBeatsPerTimeout = 4;

class C10dProcessGroup final : public ProcessGroup {
 public:
  explicit C10dProcessGroup(C10dPlace place)
      : ProcessGroup(place.process, static_cast<int>(place.to.size()), std::move(place.machines)),
        senders_(place.to.size()),
        receivers_(place.to.size()),
        patience_(place.patience),
        stores_(std::move(place.stores)),
        on_device_(!place.device.is_cpu()) {
    const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(place.timeout);
    for (int other = 0; other < processes(); ++other) {
      if (other == process()) continue;
      const int peer = other > process() ? 1 : 0;
      const std::size_t i = Index(other);
      senders_[i] = std::make_unique<EdgeSender>(std::move(place.to[i]), peer, place.device,
                                                 timeout / kBeatsPerTimeout, timeout,
                                                 [this, other] { Lose(other); });
    }
    // Frames may be delivered from here on, and answered.
    for (int other = 0; other < processes(); ++other) {
      if (other == process()) continue;
      const std::size_t i = Index(other);
      receivers_[i] = std::make_unique<EdgeReceiver>(
          std::move(place.from[i]), other > process() ? 1 : 0, place.device, timeout,
          [this, other](const EdgeHeader& header, Message message) {
            Deliver(other, header.channel, header.tag, std::move(message));
          },
          [this, other] { Lose(other); });
    }
  }

  ~C10dProcessGroup() override {
    for (const auto& sender : senders_) {
      if (sender) sender->Put({.channel = kEdgeEnd}, Message());
    }
    // Otherwise what it has not yet read could be lost with the connection.
    const auto deadline =
        std::chrono::steady_clock::now() + (lost() >= 0 ? std::chrono::milliseconds(0) : patience_);
    for (const auto& receiver : receivers_) {
      if (receiver) receiver->WaitForEnd(deadline);
    }
    receivers_.clear();
    senders_.clear();
  }

  bool TakesDeviceMessages() const override { return on_device_; }

 protected:
  void SendFrame(int to, std::int64_t channel, const FrameTag& tag, Message message) override {
    senders_[Index(to)]->Put({.channel = channel, .tag = tag}, std::move(message));
  }

 private:
  std::vector<std::unique_ptr<EdgeSender>> senders_;      // by process
  std::vector<std::unique_ptr<EdgeReceiver>> receivers_;  // by process
  const std::chrono::milliseconds patience_;
  const std::shared_ptr<const void> stores_;
  const bool on_device_;
};

Result<std::vector<C10dGroup>> GroupsOf(int process, const std::vector<std::string>& names) {
  std::vector<C10dGroup> groups;
  for (std::size_t other = 0; other < names.size(); ++other) {
    if (Index(process) == other) {
      groups.emplace_back();
      continue;
    }
    try {
      groups.push_back(c10d::resolve_process_group(names[other]));
    } catch (const std::exception&) {
      return NotFound("torch.distributed has no process group '{}'", names[other]);
    }
  }
  return groups;
}

}  // namespace

std::unique_ptr<ProcessGroup> MakeC10dProcessGroup(C10dPlace place) {
  return std::make_unique<C10dProcessGroup>(std::move(place));
}

Result<C10dPlace> FindC10dPlace(int process, const std::vector<std::string>& to,
                                const std::vector<std::string>& from) {
  C10dPlace place;
  place.process = process;
  PENSTOCK_TRY(place.timeout, ProcessTimeout());
  PENSTOCK_TRY(place.to, GroupsOf(process, to));
  PENSTOCK_TRY(place.from, GroupsOf(process, from));
  return place;
}

}  // namespace penstock
