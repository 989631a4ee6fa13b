#include "graph/ops/random_ops.h"

#include "base/mix_bits.h"

namespace penstock {
namespace {

thread_local std::int64_t next_op = 0;

}  // namespace

std::int64_t NextRandomOp() { return next_op++; }
std::int64_t PeekRandomOp() { return next_op; }
void SetRandomOp(std::int64_t next) { next_op = next; }

void BeginLayer() { next_op = (next_op / kRandomOpsPerLayer + 1) * kRandomOpsPerLayer; }

void SeedRandomOp(at::Generator& generator, std::uint64_t seed, std::int64_t number) {
  generator.set_current_seed(SeedOf(seed, static_cast<std::uint64_t>(number)));
}

}  // namespace penstock
