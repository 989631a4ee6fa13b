// A text of a few words in random order, which a tiny model learns in a few steps.
#pragma once

#include <array>
#include <random>
#include <string>

namespace penstock {

inline std::string Sentences() {
  std::mt19937 random(4);
  std::string text;
  for (int i = 0; i < 4000; ++i) {
    text += std::array{"the ", "cat ", "sat ", "on ", "a ", "mat.\n"}[random() % 6];
  }
  return text;
}

}  // namespace penstock
