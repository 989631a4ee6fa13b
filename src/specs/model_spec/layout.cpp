#include "model_spec/layout.h"

#include <nlohmann/json.hpp>
#include <string>

#include "base/index.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/text/split.h"

namespace penstock {
namespace {

// The parts of a model in the order in which they compute.
enum class Part : char { kEmbedding = 'E', kLayer = 't', kPredictor = 'm', kLoss = 'L' };
using Stages = std::vector<std::vector<Part>>;

constexpr std::size_t kMostParts = 1 << 20;

// Expands "(tt|)*29" and "t*3". The text is [begin, end).
class MegatronLayout {
 public:
  explicit MegatronLayout(std::string_view text) : text_(text) {}

  Result<std::string> Expand() {
    PENSTOCK_TRY(std::string all, Sequence(0));
    if (at_ < text_.size()) return InvalidArgument("')' without '(' at character {}", at_ + 1);
    return all;
  }

 private:
  Result<std::string> Sequence(int depth) {
    std::string all;
    while (at_ < text_.size() && text_[at_] != ')') {
      PENSTOCK_TRY(const std::string one, Item(depth));
      PENSTOCK_TRY(const std::size_t times, Times());
      if (one.size() * times + all.size() > kMostParts) {
        return InvalidArgument("more than {} layers", kMostParts);
      }
      for (std::size_t i = 0; i < times; ++i) all += one;
    }
    return all;
  }
  Result<std::string> Item(int depth) {
    constexpr int kDeepest = 64;
    const char c = text_[at_];
    if (c == '(' && depth < kDeepest) {
      ++at_;
      PENSTOCK_TRY(std::string inner, Sequence(depth + 1));
      if (at_ == text_.size()) return InvalidArgument("'(' without ')'");
      ++at_;
      return inner;
    }
    if (std::string_view("EtmL|").find(c) != std::string_view::npos) {
      ++at_;
      return std::string(1, c);
    }
    if (c == ',' || c == ' ') {
      ++at_;
      return std::string();
    }
    return InvalidArgument("character {} is {}; E, t, m, L, |, *N and parentheses are known",
                           at_ + 1, Quote(std::string(1, c)));
  }
  Result<std::size_t> Times() {
    if (at_ == text_.size() || text_[at_] != '*') return 1;
    const std::size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    const auto times = ParseInt(std::string(text_.substr(begin, at_ - begin)));
    if (times && *times >= 0 && Index(*times) <= kMostParts) return Index(*times);
    return InvalidArgument("'*' at character {} needs a number", begin);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

Result<Stages> ReadMegatron(std::string_view text) {
  PENSTOCK_TRY(const std::string all, MegatronLayout(text).Expand());
  Stages stages(1);
  for (const char c : all) {
    if (c == '|') {
      stages.emplace_back();
    } else {
      stages.back().push_back(static_cast<Part>(c));
    }
  }
  return stages;
}

// Layers by number must come in order. The final norm belongs to the head.
Result<Stages> ReadModuleLists(std::string_view text) {
  const auto root = nlohmann::json::parse(text, nullptr, false);
  if (!root.is_array()) return InvalidArgument("it is not a list of lists of modules");
  Stages stages;
  int next = 0;
  for (const auto& list : root) {
    if (!list.is_array()) return InvalidArgument("it is not a list of lists of modules");
    std::vector<Part>& stage = stages.emplace_back();
    for (const auto& item : list) {
      const std::string name = item.is_string() ? item.get<std::string>() : "";
      if (name == "tok_embeddings") {
        stage.push_back(Part::kEmbedding);
      } else if (name == "lm_head" || name == "output") {  // since torchtitan 0.3, and before
        stage.push_back(Part::kLoss);
      } else if (name == "layers." + std::to_string(next)) {
        stage.push_back(Part::kLayer);
        ++next;
      } else if (name != "norm") {
        return InvalidArgument("module {}: layers.{} comes next", Quote(item.dump()), next);
      }
    }
  }
  return stages;
}

Result<Stages> ReadCounts(std::string_view text) {
  Stages stages;
  for (const std::string& number : SplitAt(text, ',')) {
    const auto count = ParseInt(number);
    if (!count || *count < 0 || Index(*count) > kMostParts) {
      return InvalidArgument("{} is no number of layers", Quote(number));
    }
    stages.emplace_back(Index(*count), Part::kLayer);
  }
  stages.front().insert(stages.front().begin(), Part::kEmbedding);
  stages.back().push_back(Part::kLoss);
  return stages;
}

Result<Stages> ReadStages(std::string_view text) {
  if (text.starts_with('[')) return ReadModuleLists(text);
  if (text.find_first_not_of("0123456789,") == std::string_view::npos) return ReadCounts(text);
  return ReadMegatron(text);
}

std::int64_t CountOf(const Stages& stages, Part part) {
  std::int64_t count = 0;
  for (const auto& stage : stages) count += std::count(stage.begin(), stage.end(), part);
  return count;
}

// Parts in the order in which they compute, with one embedding and one loss at the ends.
Status CheckOrder(const Stages& stages) {
  Part last = Part::kEmbedding;
  const auto rank = [](Part part) {
    return std::string_view("EtmL").find(static_cast<char>(part));
  };
  for (const auto& stage : stages) {
    for (const Part part : stage) {
      if (rank(part) < rank(last)) {
        return InvalidArgument("{} comes after {}", static_cast<char>(part),
                               static_cast<char>(last));
      }
      last = part;
    }
  }
  if (CountOf({stages.front()}, Part::kEmbedding) != 1 || CountOf(stages, Part::kEmbedding) != 1) {
    return InvalidArgument("the embedding (E, tok_embeddings) must be in the first stage, once");
  }
  if (CountOf({stages.back()}, Part::kLoss) != 1 || CountOf(stages, Part::kLoss) != 1) {
    return InvalidArgument("the head and loss (L, output) must be in the last stage, once");
  }
  return {};
}

}  // namespace

Result<std::vector<LayerRange>> ParseLayout(std::string_view text, const LayoutSize& size) {
  PENSTOCK_TRY(const Stages stages, ReadStages(text));
  if (stages.size() != Index(size.stages)) {
    return InvalidArgument("has {} stages, the schedule {}", stages.size(), size.stages);
  }
  PENSTOCK_TRY_STATUS(CheckOrder(stages));
  if (const std::int64_t layers = CountOf(stages, Part::kLayer); layers != size.layers) {
    return InvalidArgument("has {} layers, the model {}", layers, size.layers);
  }
  const bool is_given = CountOf(stages, Part::kPredictor) > 0;
  if (is_given && CountOf(stages, Part::kPredictor) != size.predictors) {
    return InvalidArgument("has {} layers that predict further tokens (m), the model {}",
                           CountOf(stages, Part::kPredictor), size.predictors);
  }
  std::vector<LayerRange> ranges;
  std::int64_t begin = 0;
  for (const auto& stage : stages) {
    LayerRange range{.begin = begin, .end = begin + CountOf({stage}, Part::kLayer)};
    range.embedding = CountOf({stage}, Part::kEmbedding) > 0;
    range.head = CountOf({stage}, Part::kLoss) > 0;
    range.predictors = CountOf({stage}, Part::kPredictor);
    begin = range.end;
    ranges.push_back(range);
  }
  if (!is_given) ranges.back().predictors = size.predictors;
  return ranges;
}

}  // namespace penstock
