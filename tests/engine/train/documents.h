// Documents of many lengths, separated as fortunes are.
#pragma once

#include <cstddef>
#include <random>
#include <string>

namespace penstock {

// Each has 1 to `longest` letters at random.
inline std::string DistinctDocuments(int count, std::size_t longest) {
  std::mt19937 random(4);
  std::string text;
  for (int document = 0; document < count; ++document) {
    const std::size_t length = 1 + random() % longest;
    for (std::size_t i = 0; i < length; ++i) text += "etaoin shr"[random() % 10];
    text += "\n%\n";
  }
  return text;
}

}  // namespace penstock
