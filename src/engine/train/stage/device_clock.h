// DeviceClock: when a rank's work ran on a device, by events. Private to train/.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <vector>

#include "runtime/stage.h"

namespace penstock {

class DeviceClock final : public StageClock {
 public:
  explicit DeviceClock(c10::Device device) : device_(device), end_(NewEvent()) {}

  void Begin(std::size_t marks) override;
  void Mark(std::size_t mark) override;
  // Waits for the device. Times are relative to this moment.
  void End();
  std::int64_t At(std::size_t mark) const override;

 private:
  struct Marked {
    c10::Event event;
    bool set = false;
  };

  c10::Event NewEvent() const { return {device_.type(), c10::EventFlag::BACKEND_DEFAULT}; }
  c10::Stream Current() const;

  c10::Device device_;
  c10::Event end_;
  std::int64_t end_ns_ = 0;
  std::vector<Marked> marks_;
};

}  // namespace penstock
