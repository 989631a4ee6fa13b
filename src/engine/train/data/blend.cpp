#include "train/data/blend.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "train/data/permutation.h"

namespace penstock {
namespace {

constexpr std::uint64_t kBlendBlock = 4096;

std::string_view WithoutSpaces(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

}  // namespace

Result<std::vector<BlendPart>> ParseBlend(std::string_view text) {
  std::vector<BlendPart> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = WithoutSpaces(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t space = std::min(part.find_first_of(" \t\n"), part.size());
    const Result<double> weight = ParseNumber(part.substr(0, space));
    const std::string_view path = WithoutSpaces(part.substr(space));
    if (!weight || !(*weight > 0) || !std::isfinite(*weight) || path.empty()) {
      return InvalidParameter("data.blend",
                              ": {} is not a weight above 0 and a path, as in '0.7 tokens/web, 0.3 "
                              "tokens/code'",
                              Quote(part));
    }
    parts.push_back({*weight, std::string(path)});
  }
  if (parts.size() > kBlendBlock) {
    return InvalidArgument("data.blend has {} datasets; the most is {}", parts.size(), kBlendBlock);
  }
  return parts;
}

DatasetBlend::DatasetBlend(const std::vector<double>& weights, std::uint64_t seed)
    : counts_(weights.size(), 1), order_(kBlendBlock) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  // Always gives the next sample to the dataset that lacks most.
  for (std::uint64_t given = weights.size(); given < kBlendBlock; ++given) {
    const auto lacks = [&](std::size_t i) {
      return weights[i] / sum * kBlendBlock - static_cast<double>(counts_[i]);
    };
    std::size_t most = 0;
    for (std::size_t i = 1; i < weights.size(); ++i) {
      if (lacks(i) > lacks(most)) most = i;
    }
    ++counts_[most];
  }
  std::vector<std::size_t> datasets;
  for (std::size_t i = 0; i < counts_.size(); ++i) datasets.insert(datasets.end(), counts_[i], i);
  std::vector<std::uint64_t> given(counts_.size());
  for (std::uint64_t i = 0; i < kBlendBlock; ++i) {
    const std::size_t dataset = datasets[PermutedIndex(i, kBlendBlock, seed)];
    order_[i] = {dataset, given[dataset]++};
  }
}

DatasetBlend::Choice DatasetBlend::Of(std::uint64_t sample) const {
  Choice choice = order_[sample % kBlendBlock];
  choice.index += sample / kBlendBlock * counts_[choice.dataset];
  return choice;
}

std::uint64_t DatasetBlend::CountBefore(std::size_t dataset, std::uint64_t samples) const {
  const auto end = order_.begin() + static_cast<std::ptrdiff_t>(samples % kBlendBlock);
  const auto of_block = std::count_if(
      order_.begin(), end, [&](const Choice& choice) { return choice.dataset == dataset; });
  return samples / kBlendBlock * counts_[dataset] + static_cast<std::uint64_t>(of_block);
}

}  // namespace penstock
