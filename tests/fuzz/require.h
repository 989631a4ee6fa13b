// Checks a condition of a fuzzer. If it fails, ends the program as libFuzzer expects.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace penstock {

inline void Require(bool holds, const char* what, const std::string& detail) {
  if (holds) return;
  std::fprintf(stderr, "%s\n%s\n", what, detail.c_str());
  std::abort();
}

}  // namespace penstock
