// Graphs of the test device: a replay starts the tasks that were recorded.
#include <c10/util/Exception.h>

#include <atomic>
#include <utility>

#include "graph/device/device_plugin.h"
#include "tests/engine/device/pipe_backend.h"
#include "tests/engine/device/runtime.h"

namespace penstock::testing {
namespace {

class TestGraph final : public DeviceGraph {
 public:
  explicit TestGraph(std::shared_ptr<Recording> recording) : recording_(std::move(recording)) {}
  void Replay() override { Device::Get().Replay(Device::CurrentStream(), *recording_); }

 private:
  std::shared_ptr<Recording> recording_;
};

class TestPool final : public GraphPool {
 public:
  void Begin() override {
    recording_ = std::make_shared<Recording>();
    recording_->pool = pool_;
    stream_ = Device::CurrentStream();
    Device::Get().BeginRecording(stream_, recording_);
  }
  std::unique_ptr<DeviceGraph> End() override {
    Device::Get().EndRecording(stream_);
    TORCH_CHECK(!recording_->failed, "the recording has failed");
    return std::make_unique<TestGraph>(std::exchange(recording_, nullptr));
  }

 private:
  static int NextPool() {
    static std::atomic<int> next = 0;
    return ++next;
  }

  const int pool_ = NextPool();
  int stream_ = 0;
  std::shared_ptr<Recording> recording_;
};

constexpr int kMostParts = 4;

class TestPlugin final : public DevicePlugin {
 public:
  std::unique_ptr<GraphPool> MakeGraphPool(c10::Device) override {
    return std::make_unique<TestPool>();
  }
  c10::Stream MakePartStream(c10::Device device, int part, int parts) override {
    TORCH_CHECK(part >= 0 && part < parts && parts <= kMostParts, "the test device has ",
                kMostParts, " parts");
    return c10::Stream(c10::Stream::UNSAFE, device, Device::Get().NewStream(device.index()));
  }
  c10::intrusive_ptr<c10d::Backend> MakeBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                                int rank, int size) override {
    return c10::make_intrusive<PipeBackend>(store, rank, size);
  }
};

}  // namespace
}  // namespace penstock::testing

// The name of PyTorch's type of device for backends that it does not have.
extern "C" penstock::DevicePlugin* penstock_device_plugin_test_device() {
  static penstock::testing::TestPlugin plugin;
  return &plugin;
}
