#include "tests/engine/device/runtime.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace penstock::testing {
namespace {

constexpr int kPoison = 0xff;  // a NaN in every floating-point type
const std::string kCopyBetween = "copy between devices";

}  // namespace

void Queue::Add(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void Queue::Drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return tasks_.empty() && !is_running_; });
}

void Queue::Run() {
  at::set_num_threads(1);  // so that sums have one order
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !tasks_.empty(); });
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    is_running_ = true;
    lock.unlock();
    Device::Get().Delay();
    task();
    task = nullptr;
    lock.lock();
    is_running_ = false;
    changed_.notify_all();
  }
}

Device& Device::Get() {
  static Device* const device = new Device;
  return *device;
}

Device::Device() {
  for (int device = 0; device < kTestDevices; ++device) NewStream(device);
}

int& Device::CurrentDevice() {
  thread_local int device = 0;
  return device;
}

int& Device::CurrentStream(int device) {
  thread_local std::array<int, kTestDevices> streams = {0, 1};
  return streams.at(static_cast<std::size_t>(device));
}

int Device::NewStream(int device) {
  const std::lock_guard lock(mutex_);
  queues_.push_back(std::make_unique<Queue>());
  devices_.push_back(device);
  return static_cast<int>(queues_.size()) - 1;
}

int Device::DeviceOf(int stream) {
  const std::lock_guard lock(mutex_);
  return devices_.at(static_cast<std::size_t>(stream));
}

void Device::Start(int stream, const std::string& name, const std::vector<Access>& accesses,
                   std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (const auto found = recordings_.find(stream); found != recordings_.end()) {
    found->second->tasks.push_back({name, accesses, std::move(task)});
    return;
  }
  StartLocked(stream, name, accesses, std::move(task));
}

void Device::RefuseRecording(int stream, const std::string& what) {
  const auto found = recordings_.find(stream);
  if (found == recordings_.end()) return;
  found->second->failed = true;
  TORCH_CHECK(false, "the test device cannot record: ", what);
}

void Device::BeginRecording(int stream, std::shared_ptr<Recording> recording) {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(recordings_.emplace(stream, std::move(recording)).second);
}

void Device::EndRecording(int stream) {
  const std::lock_guard lock(mutex_);
  const auto node = recordings_.extract(stream);
  TORCH_CHECK(!node.empty());
  const Recording& ended = *node.mapped();
  // CUDA prints a warning.
  if (!ended.failed && ended.tasks.empty()) report_.races.emplace_back("a recording is empty");
  ++report_.recordings;
}

void Device::Replay(int stream, const Recording& recording) {
  const std::lock_guard lock(mutex_);
  ++report_.replays;
  for (const Recording::Task& task : recording.tasks) {
    StartLocked(stream, task.name, task.accesses, task.run);
  }
}

void Device::StartLocked(int stream, const std::string& name, const std::vector<Access>& accesses,
                         std::function<void()> task) {
  if (dropped_ && dropped_->first == stream) {
    report_.needless = order_.IsAfter(stream, dropped_->second);
    dropped_.reset();
  }
  order_.Begin(stream);
  ++report_.tasks;
  for (const auto& [address, writes] : accesses) {
    Block* const block = memory_.At(address);
    if (block == nullptr) continue;
    if (block->device != devices_.at(static_cast<std::size_t>(stream)) && name != kCopyBetween) {
      report_.races.push_back(name + " accesses memory of another device");
    }
    std::string race = writes ? order_.Write(block->accesses, stream, name)
                              : order_.Read(block->accesses, stream, name);
    if (!race.empty()) report_.races.push_back(std::move(race));
  }
  QueueOf(stream).Add(std::move(task));
}

void Device::WaitLocked(int stream, int other) {
  auto event = std::make_shared<Event>();
  order_.Wait(stream, order_.After(other));
  QueueOf(other).Add([event] {
    event->reached = true;
    event->reached.notify_all();
  });
  QueueOf(stream).Add([event] { event->reached.wait(false); });
}

void Device::CopyBetween(int from, int to, const std::vector<Access>& accesses,
                         std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  RefuseRecording(from, kCopyBetween);
  RefuseRecording(to, kCopyBetween);
  WaitLocked(from, to);
  StartLocked(from, kCopyBetween, accesses, std::move(task));
  WaitLocked(to, from);
}

std::shared_ptr<Event> Device::Record(int stream) {
  const std::lock_guard lock(mutex_);
  RefuseRecording(stream, "an event");
  auto event = std::make_shared<Event>();
  event->stream = stream;
  event->after = order_.After(stream);
  QueueOf(stream).Add([event] {
    event->at = std::chrono::steady_clock::now();
    event->reached = true;
    event->reached.notify_all();
  });
  return event;
}

void Device::Await(int stream, const std::shared_ptr<Event>& event) {
  const std::lock_guard lock(mutex_);
  RefuseRecording(stream, "a wait for an event");
  if (event->stream < kTestDevices) {
    ++report_.default_waits;
    if (drops_default_waits_) return;
  } else if (!order_.IsAfter(stream, event->after)) {
    ++report_.waits;
    if (wait_to_drop_-- == 0) {
      report_.dropped = true;
      dropped_.emplace(stream, event->after);
      return;
    }
  }
  order_.Wait(stream, event->after);
  QueueOf(stream).Add([event] { event->reached.wait(false); });
}

void Device::SynchronizeStream(int stream, const std::string& reason) {
  Queue* queue = nullptr;
  Clock after;
  {
    const std::lock_guard lock(mutex_);
    RefuseRecording(stream, reason);
    report_.host_operations.push_back(reason);
    order_.Begin(stream);
    after = order_.After(stream);
    queue = &QueueOf(stream);
  }
  queue->Drain();
  const std::lock_guard lock(mutex_);
  order_.WaitOnHost(after);
}

void Device::SynchronizeEvent(const Event& event) {
  event.reached.wait(false);
  const std::lock_guard lock(mutex_);
  report_.host_operations.emplace_back("wait for an event");
  order_.WaitOnHost(event.after);
}

void* Device::Allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  FreeUnused();
  const int stream = CurrentStream();
  const auto found = recordings_.find(stream);
  const bool is_recording = found != recordings_.end();
  Block* const block = memory_.Allocate(bytes, stream, is_recording ? found->second->pool : 0);
  block->device = CurrentDevice();
  if (is_recording) block->recording = found->second.get();
  return block->address;
}

void Device::Free(void* address) {
  const std::lock_guard lock(mutex_);
  Freed freed{memory_.At(address), {}};
  for (const int stream : std::exchange(freed.block->uses, {})) {
    auto event = std::make_shared<Event>();
    order_.Begin(stream);
    event->after = order_.After(stream);
    QueueOf(stream).Add([event] { event->reached = true; });
    freed.uses.push_back(std::move(event));
  }
  if (freed.uses.empty()) return FreeBlock(freed.block);
  freed_.push_back(std::move(freed));
}

std::pair<std::size_t, std::size_t> Device::Bytes() {
  const std::lock_guard lock(mutex_);
  return {memory_.allocated(), memory_.peak()};
}

void Device::ResetPeakBytes() {
  const std::lock_guard lock(mutex_);
  memory_.ResetPeak();
}

// Poisons the block in the order of its stream, and allows that stream to use it again.
void Device::FreeBlock(Block* block) {
  auto poison = [begin = Shadow(block->address), bytes = block->bytes] {
    std::memset(begin, kPoison, bytes);
  };
  const auto found = recordings_.find(block->stream);
  if (found != recordings_.end() && found->second.get() == block->recording) {
    found->second->tasks.push_back({"free", {{block->address, true}}, std::move(poison)});
  } else {
    StartLocked(block->stream, "free", {{block->address, true}}, std::move(poison));
  }
  memory_.Free(block);
}

// As PyTorch's allocator for CUDA does: blocks that other streams used are free once the host sees
// that these streams have passed their last use.
void Device::FreeUnused() {
  std::erase_if(freed_, [&](const Freed& freed) {
    for (const auto& use : freed.uses) {
      if (!use->reached) return false;
    }
    freed.block->accesses = {};  // no other order follows from that
    FreeBlock(freed.block);
    return true;
  });
}

void Device::RecordUse(const void* address, int stream) {
  const std::lock_guard lock(mutex_);
  Block* const block = memory_.At(address);
  if (block == nullptr || stream == block->stream) return;
  ++report_.recorded_uses;
  if (use_to_drop_-- == 0) {
    report_.dropped = true;
    return;
  }
  block->uses.push_back(stream);
}

DeviceReport Device::TakeReport() {
  const std::lock_guard lock(mutex_);
  return std::exchange(report_, {});
}

void Device::SetDelays(int most_microseconds, std::uint32_t seed) {
  const std::lock_guard lock(delay_mutex_);
  most_delay_ = most_microseconds;
  random_.seed(seed);
}

void Device::Delay() {
  int delay = 0;
  {
    const std::lock_guard lock(delay_mutex_);
    if (most_delay_ == 0) return;
    delay = static_cast<int>(random_() % static_cast<unsigned>(most_delay_ + 1));
  }
  std::this_thread::sleep_for(std::chrono::microseconds(delay));
}

void Device::DropDefaultWaits(bool drop) {
  const std::lock_guard lock(mutex_);
  drops_default_waits_ = drop;
}

void Device::DropWait(std::int64_t n) {
  const std::lock_guard lock(mutex_);
  wait_to_drop_ = n;
}
void Device::DropRecordedUse(std::int64_t n) {
  const std::lock_guard lock(mutex_);
  use_to_drop_ = n;
}

DeviceReport TakeReport() { return Device::Get().TakeReport(); }
void SetDelays(int most_microseconds, std::uint32_t seed) {
  Device::Get().SetDelays(most_microseconds, seed);
}
void DropDefaultWaits(bool drop) { Device::Get().DropDefaultWaits(drop); }
void DropWait(std::int64_t n) { Device::Get().DropWait(n); }
void DropRecordedUse(std::int64_t n) { Device::Get().DropRecordedUse(n); }

}  // namespace penstock::testing

// With PENSTOCK_TESTED_DEVICE, a program that never takes the report fails if there was a race.
namespace {

[[gnu::destructor]] void FailAfterRaces() {
  if (std::getenv("PENSTOCK_TESTED_DEVICE") == nullptr) return;
  const penstock::testing::DeviceReport report = penstock::testing::TakeReport();
  if (report.races.empty()) return;
  std::fprintf(stderr, "%zu races, the first: %s\n", report.races.size(),
               report.races.front().c_str());
  std::_Exit(1);
}

}  // namespace

extern "C" const char* penstock_test_device_report() {
  static std::string text;
  text.clear();
  const penstock::testing::DeviceReport report = penstock::testing::TakeReport();
  for (const std::string& race : report.races) text += "race: " + race + "\n";
  for (const std::string& each : report.host_operations) text += "host: " + each + "\n";
  if (report.replays > 0) text += "replays\n";
  return text.c_str();
}
