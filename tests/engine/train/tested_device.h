// The device that tests of training use: the CPU, or for another run of the same tests, what the
// variable PENSTOCK_TESTED_DEVICE names. Where that device is missing, train_tests skips all
// tests: it exits with kSkipped.
#pragma once

#include <cstdlib>
#include <string>

namespace penstock {

constexpr int kSkipped = 77;

inline std::string TestedDevice() {
  const char* const name = std::getenv("PENSTOCK_TESTED_DEVICE");
  return name == nullptr ? "cpu" : name;
}

}  // namespace penstock
