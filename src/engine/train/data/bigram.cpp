#include "train/data/bigram.h"

#include <cmath>

namespace penstock {
namespace {

constexpr std::size_t kByteValues = 256;
// Weight of the distribution of single bytes. Between 1 and 32, the loss on held-out fortunes
// changes by only 0.001.
constexpr double kBackOff = 16;

}  // namespace

Bigram::Bigram(std::span<const std::uint8_t> text) : nats_(kByteValues * kByteValues) {
  std::vector<double> single(kByteValues, 1.0);  // add one
  std::vector<double> pairs(kByteValues * kByteValues, 0.0);
  std::vector<double> firsts(kByteValues, 0.0);
  for (std::size_t i = 0; i < text.size(); ++i) {
    single[text[i]] += 1;
    if (i + 1 == text.size()) break;
    pairs[text[i] * kByteValues + text[i + 1]] += 1;
    firsts[text[i]] += 1;
  }
  const double total = static_cast<double>(text.size() + kByteValues);
  for (std::size_t a = 0; a < kByteValues; ++a) {
    for (std::size_t b = 0; b < kByteValues; ++b) {
      const double probability =
          (pairs[a * kByteValues + b] + kBackOff * single[b] / total) / (firsts[a] + kBackOff);
      nats_[a * kByteValues + b] = -std::log(probability);
    }
  }
}

double Bigram::MeanNats(std::span<const std::uint8_t> text) const {
  if (text.size() < 2) return 0;
  double sum = 0;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) sum += Nats(text[i], text[i + 1]);
  return sum / static_cast<double>(text.size() - 1);
}

}  // namespace penstock
