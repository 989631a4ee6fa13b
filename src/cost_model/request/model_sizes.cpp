#include "cost_model/request/model_sizes.h"

#include <array>

#include "base/text/numbers.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

struct SizeField {
  const char* name;
  std::optional<int> ModelSizes::*given;
  std::int64_t ModelShape::*size;
};
constexpr SizeField kSizes[] = {
    {"layers", &ModelSizes::layers, &ModelShape::layers},
    {"dim", &ModelSizes::dim, &ModelShape::dim},
    {"hidden", &ModelSizes::hidden, &ModelShape::hidden},
    {"vocabulary", &ModelSizes::vocabulary, &ModelShape::vocabulary},
    {"heads", &ModelSizes::heads, &ModelShape::heads},
    {"kv_heads", &ModelSizes::kv_heads, &ModelShape::kv_heads},
    {"head_dim", &ModelSizes::head_dim, &ModelShape::head_dim},
    {"predictors", &ModelSizes::predictors, &ModelShape::predictors},
    {"window", &ModelSizes::window, &ModelShape::window},
    {"positions", &ModelSizes::positions, &ModelShape::positions},
};

struct ExpertField {
  const char* name;
  std::optional<int> ModelSizes::*given;
  std::int64_t ExpertShape::*size;
};
constexpr ExpertField kExpertSizes[] = {
    {"experts", &ModelSizes::experts, &ExpertShape::experts},
    {"top_k", &ModelSizes::top_k, &ExpertShape::top_k},
    {"expert_hidden", &ModelSizes::expert_hidden, &ExpertShape::hidden},
    {"shared_experts", &ModelSizes::shared_experts, &ExpertShape::shared},
    {"shared_hidden", &ModelSizes::shared_hidden, &ExpertShape::shared_hidden},
    {"dense_layers", &ModelSizes::dense_layers, &ExpertShape::dense_layers},
    {"experts_every", &ModelSizes::experts_every, &ExpertShape::every},
};

// Reads numbers with commas between them. Errors: kInvalidArgument about the field.
template <std::size_t N>
Result<std::array<std::int64_t, N>> ReadNumbers(const char* field, const std::string& text,
                                                std::string_view meaning) {
  std::array<std::int64_t, N> numbers{};
  std::string_view rest = text;
  for (std::size_t i = 0; i < N; ++i) {
    const std::string_view number = rest.substr(0, rest.find(','));
    const auto value = ParseInt(std::string(number));
    const bool is_last = i + 1 == N;
    if (!value || *value < 0 || is_last != (number.size() == rest.size())) {
      return InvalidParameter(field, "{}: give {}", Quote(text), meaning);
    }
    numbers[i] = *value;
    if (!is_last) rest.remove_prefix(number.size() + 1);
  }
  return numbers;
}

Status SetLatent(const ModelRequest& request, ModelShape& shape) {
  if (!request.latent) return {};
  PENSTOCK_TRY(const auto sizes,
               ReadNumbers<5>("latent", *request.latent,
                              "the ranks of queries and of keys and values, and per head the sizes "
                              "without positions, with positions and of values "
                              "(1536,512,128,64,128)"));
  shape.latent = {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]};
  shape.head_dim = 0;
  return {};
}

// The layers of a hybrid. Mamba layers have by default twice the width of hidden states, in heads
// of 64 (Dao and Gu 2024, section 7).
Status SetPattern(const ModelRequest& request, ModelShape& shape) {
  constexpr std::int64_t kHeadDim = 64;
  if (request.pattern) {
    if (request.pattern->find_first_not_of("M*-E") != std::string::npos) {
      return InvalidParameter("pattern", "{}: the letters are M, *, - and E",
                              Quote(*request.pattern));
    }
    shape.pattern = *request.pattern;
    shape.layers = std::ssize(shape.pattern);
  }
  if (request.mamba) {
    PENSTOCK_TRY(const auto sizes,
                 ReadNumbers<4>("mamba", *request.mamba,
                                "the number of heads, their size, the size of their state and the "
                                "number of groups (64,64,128,8)"));
    shape.mamba = {sizes[0], sizes[1], sizes[2], sizes[3]};
  } else if (request.pattern && !shape.mamba && shape.pattern.find('M') != std::string::npos) {
    shape.mamba = {2 * shape.dim / kHeadDim, kHeadDim};
  }
  return {};
}

Status SetExperts(const ModelRequest& request, ModelShape& shape) {
  ExpertShape experts = shape.experts.value_or(ExpertShape{.top_k = 1});
  bool any = shape.experts.has_value();
  for (const ExpertField& field : kExpertSizes) {
    const std::optional<int>& given = request.*field.given;
    if (!given) continue;
    if (!any && !request.experts) {
      return InvalidParameter(field.name, "{}: the model has no experts; give `experts`", *given);
    }
    experts.*field.size = *given;
  }
  if (request.experts) any = *request.experts > 0;
  if (!any) {
    shape.experts.reset();
    return {};
  }
  if (experts.hidden == 0) experts.hidden = shape.hidden;
  shape.experts = experts;
  return {};
}

// Sets the sizes that follow from others, where neither the model nor the user has them.
void SetUsualSizes(ModelShape& shape) {
  const bool is_gpt = shape.architecture == Architecture::kGpt2;
  if (shape.kv_heads == 0) shape.kv_heads = shape.heads;
  if (shape.head_dim == 0 && !shape.latent && shape.heads > 0) {
    shape.head_dim = shape.dim / shape.heads;
  }
  if (shape.hidden != 0) return;
  constexpr std::int64_t kMultiple = 256;
  const std::int64_t gated = (8 * shape.dim / 3 + kMultiple - 1) / kMultiple * kMultiple;
  shape.hidden = is_gpt || !shape.gated ? 4 * shape.dim : gated;
}

bool ChangesSizes(const ModelRequest& request) {
  const auto is_given = [&](const auto& field) { return (request.*field.given).has_value(); };
  return std::ranges::any_of(kSizes, is_given) || std::ranges::any_of(kExpertSizes, is_given) ||
         request.latent || request.tied || request.gated || request.qk_norm || request.pattern ||
         request.mamba;
}

}  // namespace

std::optional<ModelShape> ShapeWithoutName(std::string_view name) {
  if (name != "decoder" && name != "gpt") return std::nullopt;
  ModelShape shape;
  shape.name = name;
  if (name == "decoder") return shape;
  shape.architecture = Architecture::kGpt2;
  shape.tied = true;
  shape.positions = kMostShapeSize;
  return shape;
}

Status SetSizes(const ModelRequest& request, ModelShape& shape) {
  const bool has_name = !ShapeWithoutName(shape.name).has_value();
  if (!ChangesSizes(request) && has_name) return {};
  // Sizes that the model derives from others follow the new ones.
  if (request.dim && !request.head_dim && !request.heads && !shape.latent && shape.heads > 0) {
    shape.head_dim = 0;
  }
  for (const SizeField& field : kSizes) {
    if (const std::optional<int>& given = request.*field.given) shape.*field.size = *given;
  }
  PENSTOCK_TRY_STATUS(SetPattern(request, shape));
  for (const auto& [name, size] : {std::pair("layers", shape.layers),
                                   {"dim", shape.dim},
                                   {"heads", shape.heads},
                                   {"vocabulary", shape.vocabulary}}) {
    if (size > 0) continue;
    return InvalidParameter(name, "is missing; {} needs `layers`, `dim`, `heads` and `vocabulary`",
                            shape.name);
  }
  shape.tied = request.tied.value_or(shape.tied);
  shape.gated = request.gated.value_or(shape.gated);
  shape.qk_norm = request.qk_norm.value_or(shape.qk_norm);
  PENSTOCK_TRY_STATUS(SetLatent(request, shape));
  SetUsualSizes(shape);
  PENSTOCK_TRY_STATUS(SetExperts(request, shape));
  const Status status = CheckShape(shape);
  if (status) return {};
  return InvalidParameter("model", ": {}", status.error().line());
}

}  // namespace penstock
