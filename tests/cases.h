// The number of random cases of a test.
#pragma once

namespace penstock::testing {

// Returns `count`, or a fifth of it under sanitizers, where a case takes ten times as long.
constexpr int Cases(int count) {
#ifdef PENSTOCK_SANITIZED
  return (count + 4) / 5;
#else
  return count;
#endif
}

}  // namespace penstock::testing
