// The test device as a whole: its memory, its streams, which are threads, and events.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/engine/device/device.h"
#include "tests/engine/device/memory.h"
#include "tests/engine/device/order.h"

namespace penstock::testing {

// A point in a stream.
struct Event {
  int stream = 0;  // that recorded it
  Clock after;
  std::atomic<bool> reached = false;
  std::chrono::steady_clock::time_point at = {};  // when it was reached
};

// Runs tasks in order, each after a delay. Threads: any.
class Queue {
 public:
  Queue() : thread_([this] { Run(); }) {}
  void Add(std::function<void()> task);
  void Drain();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_running_ = false;
  std::thread thread_;
};

// Memory that a task accesses.
struct Access {
  const void* address = nullptr;
  bool writes = false;
};

// What a stream is asked to do while it records.
struct Recording {
  struct Task {
    std::string name;
    std::vector<Access> accesses;
    std::function<void()> run;
  };

  int pool = 0;  // where its allocations come from
  std::vector<Task> tasks = {};
  bool failed = false;  // an op could not be recorded
};

// Threads: any.
class Device {
 public:
  // The only one, which is never destroyed, since its threads run until the process ends.
  static Device& Get();

  // The device and, on each device, the stream that this thread has chosen. The streams 0 to
  // kTestDevices - 1 are the default ones.
  static int& CurrentDevice();
  static int& CurrentStream(int device);
  static int CurrentStream() { return CurrentStream(CurrentDevice()); }
  int NewStream(int device);
  int DeviceOf(int stream);

  // Runs the task on the stream later. `name` is the op's.
  void Start(int stream, const std::string& name, const std::vector<Access>& accesses,
             std::function<void()> task);
  // Copies on a stream of the source's device, as CUDA does: after what both streams have before
  // it.
  void CopyBetween(int from, int to, const std::vector<Access>& accesses,
                   std::function<void()> task);
  std::shared_ptr<Event> Record(int stream);
  void Await(int stream, const std::shared_ptr<Event>& event);

  // The host waits, for the reason that is named.
  void SynchronizeStream(int stream, const std::string& reason);
  void SynchronizeEvent(const Event& event);

  // From Begin to End, tasks of the stream go to the recording and do not run.
  void BeginRecording(int stream, std::shared_ptr<Recording> recording);
  void EndRecording(int stream);
  void Replay(int stream, const Recording& recording);

  void* Allocate(std::size_t bytes);
  void Free(void* address);
  void RecordUse(const void* address, int stream);
  bool Contains(const void* address) const { return memory_.Contains(address); }
  char* Shadow(const void* address) const { return memory_.Shadow(address); }
  // Bytes that are allocated, now and at most since ResetPeakBytes.
  std::pair<std::size_t, std::size_t> Bytes();
  void ResetPeakBytes();

  DeviceReport TakeReport();
  void SetDelays(int most_microseconds, std::uint32_t seed);
  void DropWait(std::int64_t n);
  void DropDefaultWaits(bool drop);
  void DropRecordedUse(std::int64_t n);
  void Delay();

 private:
  Device();
  Queue& QueueOf(int stream) { return *queues_.at(static_cast<std::size_t>(stream)); }
  void StartLocked(int stream, const std::string& name, const std::vector<Access>& accesses,
                   std::function<void()> task);
  // `stream` waits for what `other` has before.
  void WaitLocked(int stream, int other);
  void FreeBlock(Block* block);
  // Fails, as the recording then does, if the stream records.
  void RefuseRecording(int stream, const std::string& what);
  void FreeUnused();

  // A freed block, and what other streams must have done before it is used again.
  struct Freed {
    Block* block = nullptr;
    std::vector<std::shared_ptr<Event>> uses;
  };

  std::mutex mutex_;
  DeviceMemory memory_;
  std::deque<std::unique_ptr<Queue>> queues_;             // by stream
  std::vector<int> devices_;                              // by stream
  std::map<int, std::shared_ptr<Recording>> recordings_;  // by stream
  Order order_;
  std::vector<Freed> freed_;
  DeviceReport report_;
  std::int64_t wait_to_drop_ = -1, use_to_drop_ = -1;
  std::optional<std::pair<int, Clock>> dropped_;  // the wait, until its stream has another task
  bool drops_default_waits_ = false;
  std::mutex delay_mutex_;
  int most_delay_ = 0;
  std::mt19937 random_;
};

}  // namespace penstock::testing
