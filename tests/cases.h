// How many random cases a test draws.
#pragma once

namespace penstock::testing {

// `count`; under sanitizers, where each takes ten times as long, a fifth of it.
constexpr int Cases(int count) {
#ifdef PENSTOCK_SANITIZED
  return (count + 4) / 5;
#else
  return count;
#endif
}

}  // namespace penstock::testing
