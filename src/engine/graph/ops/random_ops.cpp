#include "graph/ops/random_ops.h"

#include "base/mix_bits.h"

namespace penstock {
namespace {

thread_local std::int64_t next_op = 0;
thread_local std::int64_t part_of_tensor = 0;
// Numbers of a model's ops are below 1 << kPartBits.
constexpr int kPartBits = 40;

}  // namespace

std::int64_t NextRandomOp() { return next_op++ + (part_of_tensor << kPartBits); }
void SetPartOfTensor(std::int64_t part) { part_of_tensor = part; }
std::int64_t PeekRandomOp() { return next_op; }
void SetRandomOp(std::int64_t next) { next_op = next; }

void BeginLayer() { next_op = (next_op / kRandomOpsPerLayer + 1) * kRandomOpsPerLayer; }

void SeedRandomOp(at::Generator& generator, std::uint64_t seed, std::int64_t number) {
  generator.set_current_seed(SeedOf(seed, static_cast<std::uint64_t>(number)));
}

}  // namespace penstock
