// What a fuzzer's check must find; where it does not, the program ends as libFuzzer expects.
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
