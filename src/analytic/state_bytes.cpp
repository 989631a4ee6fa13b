#include "analytic/state_bytes.h"

namespace penstock {
namespace {

constexpr double kMasters = kFp32ElementBytes;      // per parameter
constexpr double kMoments = 2 * kFp32ElementBytes;  // per parameter
constexpr double kGradient = kFp32ElementBytes;     // per parameter

}  // namespace

StateBytes StatesOf(double parameters, Precision precision, const Sharding& sharding) {
  const bool casts = precision == Precision::kBf16;
  const double working = ElementBytes(precision);
  const double masters = casts ? kMasters * sharding.Share(1) : 0;
  return {parameters * (masters + working * sharding.Share(3)),
          parameters * working * sharding.Share(3), parameters * kGradient * sharding.Share(2),
          parameters * kMoments * sharding.Share(1)};
}

double StepBytes(double parameters, Precision precision, const Sharding& sharding) {
  const double cast = precision == Precision::kBf16 ? ElementBytes(precision) : 0;
  return parameters * sharding.Share(1) * (kGradient + 2 * (kMasters + kMoments) + cast);
}

}  // namespace penstock
