// Graphs of a device: work that is recorded once and started again by one call (CUDA graphs).
//
// PyTorch has no generic interface for them, so a plugin implements these (device_plugin.h).
#pragma once

#include <memory>

namespace penstock {

// Threads: one at a time.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Starts the work on the calling thread's stream. It reads and writes the memory that it used
  // when it was recorded. Throws std::exception if the device refuses.
  virtual void Replay() = 0;
};

// Records graphs that use the same memory one after the other. What a recording allocates and
// frees, and what is freed later, only the next recordings of the pool may use; so a replay may
// overwrite the results of any other graph of the pool. Graphs keep the memory; the pool object may
// go. Threads: one at a time.
class GraphPool {
 public:
  virtual ~GraphPool() = default;
  // From here on, what the calling thread starts on its stream is recorded and does not run. An op
  // that cannot be recorded throws, such as one whose result the host reads. Throws std::exception.
  virtual void Begin() = 0;
  // Ends the recording, also after an op has thrown. Throws std::exception if nothing that can be
  // replayed was recorded. In either case, the thread's ops run again.
  virtual std::unique_ptr<DeviceGraph> End() = 0;
};

}  // namespace penstock
