// An asynchronous device for tests, on the CPU: what runs on it is right only if it would be right
// on a GPU.
//
// Loading this library registers it as PyTorch's device "test_device". Each stream is a thread
// with a queue, and a call of an op returns before the op has run. The host cannot access memory of
// the device: a pointer to it faults. There are two of them, and only copies access memory of both.
// Freed memory is filled with NaN. Order that only events or waits of the host establish is checked
// (order.h).
//
// Nothing but tests links it.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::testing {

constexpr int kTestDevices = 2;
inline const c10::Device kTestDevice{c10::DeviceType::PrivateUse1, 0};
inline const c10::Device kSecondTestDevice{c10::DeviceType::PrivateUse1, 1};

// What happened since the last call of TakeReport.
struct DeviceReport {
  std::vector<std::string> races;
  std::vector<std::string> host_operations;  // ops for which the host waited
  std::int64_t tasks = 0, recorded_uses = 0;
  std::int64_t recordings = 0, replays = 0;  // of graphs
  // How often streams waited for events: where that ordered something, and for the default stream.
  std::int64_t waits = 0, default_waits = 0;
  bool dropped = false;  // a wait or a use
  // Waits that the stream makes before its next task order that task as the dropped wait does.
  bool needless = false;
};
DeviceReport TakeReport();

// Each task sleeps up to this long before it runs, by the seed. 0: no delays.
void SetDelays(int most_microseconds, std::uint32_t seed);

// The n-th wait of a stream for an event, or the n-th record of a use on another stream, is left
// out, counted from this call. -1: none.
void DropWait(std::int64_t n);
// Leaves out all waits for events of the default stream.
void DropDefaultWaits(bool drop);
void DropRecordedUse(std::int64_t n);

}  // namespace penstock::testing

// TakeReport as text for other languages: a line "race: ..." or "host: ..." each. Valid until the
// next call.
extern "C" const char* penstock_test_device_report();
