// Which waits and uses a piece of work needs.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "tests/engine/device/device.h"

namespace penstock::testing {

// Runs the work without its n-th wait or use, for every n; `drop` is DropWait or DropRecordedUse.
// Returns how many there are, and how many of these omissions are reported as races.
inline std::pair<int, int> DropEach(void (*drop)(std::int64_t), const std::function<void()>& work) {
  for (int n = 0, reported = 0;; ++n) {
    TakeReport();
    drop(n);
    work();
    drop(-1);
    const DeviceReport report = TakeReport();
    if (!report.dropped) return {n, reported};
    if (!report.races.empty()) ++reported;
  }
}

}  // namespace penstock::testing
