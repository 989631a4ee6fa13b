// The order of work on a device that runs ops after the call that starts them, such as a GPU.
//
// Each rank has a DeviceQueue, a stream of its own, and what one rank hands to another carries a
// DevicePoint. Only events order them: no thread of the host waits within a step. Both use
// PyTorch's interface for any device (c10::Stream, c10::Event). CPUs have neither.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"

namespace penstock {

// Returns the device of a name such as "cpu", "cuda" or "cuda:1", after loading what PyTorch needs
// for it. A name without a number is the device that has the number of this process on its machine,
// which mpirun, Slurm and torchrun set, or the first one. Call it before other threads
// use PyTorch. Errors: kInvalidArgument if PyTorch knows no such device, kUnavailable if it finds
// none here.
Result<c10::Device> OpenDevice(std::string_view name);

// Returns how many devices of its type the process sees. Requires: OpenDevice has returned it.
int DevicesLike(c10::Device device);

// Returns the bytes of the device's memory that are free; nothing if it does not tell.
std::optional<std::int64_t> FreeMemory(c10::Device device);

// Returns the most bytes that this process has allocated on the device at a time; nothing if the
// device does not tell.
std::optional<std::int64_t> PeakMemory(c10::Device device);

// Returns a generator of random numbers for ops on the device.
at::Generator MakeGenerator(c10::Device device);

// A stream of a device. Threads: any.
class DeviceQueue {
 public:
  // Requires: the device is not a CPU.
  explicit DeviceQueue(c10::Device device);
  explicit DeviceQueue(c10::Stream stream) : stream_(stream) {}

  c10::Device device() const { return stream_.device(); }

  // From here on, the thread's ops run on the queue, after all that was started on the device's
  // default stream so far.
  void Enter() const;
  // Waits until everything on the queue has run.
  void Synchronize() const { stream_.synchronize(); }
  c10::Stream stream() const { return stream_; }

 private:
  c10::Stream stream_;
};

// While it exists, the thread's ops run on a queue, not ordered after anything else.
class DeviceScope {
 public:
  explicit DeviceScope(const DeviceQueue& queue);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  // The stream that the thread uses before and after.
  c10::Stream before() const { return before_; }

 private:
  c10::Stream before_;
};

// The tensors, which another stream has allocated, keep their memory until this one has run what it
// has by the time they are freed. Requires: they are on the stream's device.
void KeepUntilRead(std::span<const at::Tensor> tensors, const c10::Stream& stream);

// A point in the stream that a thread uses: what was started before it. Threads: one at a time.
class DevicePoint {
 public:
  // The point where the calling thread's stream is now.
  explicit DevicePoint(c10::Device device);

  // The stream waits for the point.
  void Await(const c10::Stream& stream) const { event_.block(stream); }
  // The calling thread's stream waits for the point. The tensors, which another stream has
  // computed, keep their memory until this one has used them.
  void Await(std::span<const at::Tensor> tensors);

 private:
  c10::Event event_;
};

}  // namespace penstock
