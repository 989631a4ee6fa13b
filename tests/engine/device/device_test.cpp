// The test device computes what the CPU does, and reports what would be wrong on a GPU.
#include "tests/engine/device/device.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

c10::Stream NewStream() {
  return c10::impl::VirtualGuardImpl(kTestDevice.type()).getNewStream(kTestDevice);
}

class TestDevice : public ::testing::Test {
 protected:
  TestDevice() { TakeReport(); }
  ~TestDevice() override {
    SetDelays(0, 0);
    DropWait(-1);
    DropRecordedUse(-1);
  }
};

// A value is computed on one stream and used on another, then freed by the host.
at::Tensor HandOver(const at::Tensor& input) {
  const c10::Stream first = NewStream(), second = NewStream();
  c10::Event ready(kTestDevice.type()), done(kTestDevice.type());
  at::Tensor result;
  {
    at::Tensor product;
    {
      const c10::StreamGuard guard(first);
      ready.record(first);
      const at::Tensor moved = input.to(kTestDevice);
      product = at::mm(moved, moved);
      ready.record(first);
    }
    const c10::StreamGuard guard(second);
    ready.block(second);
    c10::impl::VirtualGuardImpl(kTestDevice.type())
        .recordDataPtrOnStream(product.storage().data_ptr(), second);
    result = at::mm(product, product);
    done.record(second);
  }
  const c10::StreamGuard guard(first);
  const at::Tensor reused = at::zeros(input.sizes(), input.options().device(kTestDevice));
  done.block(first);
  return result.cpu();
}

TEST_F(TestDevice, OrderedStreamsHaveTheResultsOfTheCpu) {
  const at::Tensor input = at::rand({32, 32});
  const at::Tensor product = at::mm(input, input), expected = at::mm(product, product);
  for (int seed = 0; seed < 20; ++seed) {
    SetDelays(200, static_cast<std::uint32_t>(seed));
    EXPECT_TRUE(HandOver(input).equal(expected)) << seed;
  }
  const DeviceReport report = TakeReport();
  EXPECT_TRUE(report.races.empty()) << report.races.front();
  EXPECT_EQ(report.host_operations.size(), 20);  // each copies its result to the host
}

TEST_F(TestDevice, EachOrderThatIsLeftOutIsARace) {
  const at::Tensor input = at::rand({32, 32});
  HandOver(input);
  const DeviceReport whole = TakeReport();
  ASSERT_EQ(whole.waits, 2);
  ASSERT_EQ(whole.recorded_uses, 1);
  for (std::int64_t n = 0; n < whole.waits; ++n) {
    DropWait(n);
    HandOver(input);
    EXPECT_FALSE(TakeReport().races.empty()) << n;
  }
  DropRecordedUse(0);
  HandOver(input);
  EXPECT_FALSE(TakeReport().races.empty());
}

TEST_F(TestDevice, AccessesOfTheHostFault) {
  const at::Tensor tensor = at::ones({4}).to(kTestDevice);
  EXPECT_DEATH(
      {
        volatile float value = *tensor.const_data_ptr<float>();
        static_cast<void>(value);
      },
      "");
}

TEST_F(TestDevice, FreedMemoryIsPoisoned) {
  const c10::Stream stream = NewStream();
  const c10::StreamGuard guard(stream);
  { const at::Tensor ones = at::ones({8}, at::device(kTestDevice)); }
  const at::Tensor reused = at::empty({8}, at::device(kTestDevice));
  EXPECT_TRUE(reused.cpu().isnan().all().item<bool>());
}

TEST_F(TestDevice, TrainsALayerAsTheCpuDoes) {
  const at::Tensor weight = at::rand({16, 8}), input = at::rand({4, 8});
  const auto gradient_of = [&](c10::Device device) {
    at::Tensor leaf = weight.to(device).clone().requires_grad_();
    const at::Tensor loss = at::gelu(at::linear(input.to(device), leaf)).square().mean();
    loss.backward();
    return leaf.grad().cpu();
  };
  EXPECT_TRUE(gradient_of(kTestDevice).equal(gradient_of(at::kCPU)));
  EXPECT_TRUE(TakeReport().races.empty());
}

}  // namespace
}  // namespace penstock::testing
