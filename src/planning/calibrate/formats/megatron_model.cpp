#include "calibrate/formats/megatron_model.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "model_spec/layout.h"

namespace penstock {
namespace {

constexpr int kVocabularyMultiple = 128;  // Megatron-LM's default

// Tokens of the tokenizers that the tests use.
constexpr std::pair<std::string_view, int> kTokenizers[] = {{"GPT2BPETokenizer", 50'257},
                                                            {"GPTSentencePieceTokenizer", 256'000},
                                                            {"TikTokenizer", 131'072}};

// The tokens of the vocabulary, padded so that ranks divide it.
Result<int> VocabularyOf(const MegatronArguments& arguments, int tensor) {
  int tokens = kTokenizers[0].second;
  const std::string_view tokenizer = arguments.Text("tokenizer-type");
  if (arguments.Has("vocab-size")) {
    PENSTOCK_TRY(tokens, arguments.Count("vocab-size"));
    if (tokenizer == "NullTokenizer") ++tokens;  // the end of a document
  } else {
    for (const auto& [name, size] : kTokenizers) {
      if (name == tokenizer) tokens = size;
    }
  }
  PENSTOCK_TRY(const int multiple,
               arguments.CountOr("make-vocab-size-divisible-by", kVocabularyMultiple));
  const int unit = multiple * tensor;
  return (tokens + unit - 1) / unit * unit;
}

// Megatron-LM's default width of feed-forward layers.
int UsualHidden(int dim, bool gated) {
  constexpr int kMultiple = 64;
  return gated ? 8 * dim / 3 / kMultiple * kMultiple : 4 * dim;
}

Status SetAttention(const MegatronArguments& arguments, RunTexts& texts) {
  PENSTOCK_TRY(const int heads, arguments.Count("num-attention-heads"));
  texts.Set("heads", heads);
  if (!arguments.IsTrue("multi-latent-attention")) {
    PENSTOCK_TRY(const int kv_heads, arguments.CountOr("num-query-groups", heads));
    if (kv_heads != heads) texts.Set("kv_heads", kv_heads);
    if (!arguments.Has("kv-channels")) return {};
    PENSTOCK_TRY(const int head_dim, arguments.Count("kv-channels"));
    texts.Set("head_dim", head_dim);
    return {};
  }
  std::vector<int> sizes;
  for (const auto& [name, usual] : {std::pair("kv-lora-rank", 32),
                                    {"qk-head-dim", 128},
                                    {"qk-pos-emb-head-dim", 64},
                                    {"v-head-dim", 128}}) {
    PENSTOCK_TRY(const int size, arguments.CountOr(name, usual));
    sizes.push_back(size);
  }
  int query_rank = 0;
  if (arguments.Has("q-lora-rank")) {
    PENSTOCK_TRY(query_rank, arguments.Count("q-lora-rank"));
  }
  texts.Set("latent", fmt::format("{},{}", query_rank, fmt::join(sizes, ",")));
  return {};
}

// One letter per layer. '|' separates stages, and '/' the layers of predictors.
std::string PatternOf(const MegatronArguments& arguments) {
  std::string pattern(arguments.Text("hybrid-layer-pattern"));
  if (pattern.empty()) pattern = arguments.Text("hybrid-override-pattern");
  pattern = pattern.substr(0, pattern.find('/'));
  std::erase_if(pattern, [](char c) { return c == '|' || c == '"'; });
  return pattern;
}

// "([0]*3+[1]*11)" has 3 dense layers.
Result<int> DenseLayersOf(const MegatronArguments& arguments) {
  constexpr std::string_view kName = "moe-layer-freq", kBegin = "([0]*";
  const std::string_view text = arguments.Text(kName);
  if (text.empty() || text == "1") return 0;
  if (text.starts_with(kBegin)) {
    const std::string_view rest = text.substr(kBegin.size());
    const auto layers = ParseInt(rest.substr(0, rest.find('+')));
    if (layers && rest.find("+[1]*") != std::string_view::npos) return *layers;
  }
  return InvalidParameter(kName, "{}: only dense layers before all others can be expressed",
                          Quote(text));
}

Status SetExperts(const MegatronArguments& arguments, int hidden, RunTexts& texts) {
  if (!arguments.Has("num-experts")) return {};
  PENSTOCK_TRY(const int experts, arguments.Count("num-experts"));
  PENSTOCK_TRY(const int top_k, arguments.CountOr("moe-router-topk", 2));
  PENSTOCK_TRY(const int width, arguments.CountOr("moe-ffn-hidden-size", hidden));
  PENSTOCK_TRY(const int dense_layers, DenseLayersOf(arguments));
  texts.Set("experts", experts);
  texts.Set("top_k", top_k);
  texts.Set("expert_hidden", width);
  if (dense_layers > 0 && PatternOf(arguments).empty()) texts.Set("dense_layers", dense_layers);
  if (!arguments.IsTrue("moe-grouped-gemm")) texts.Set("grouped_experts", "false");
  constexpr std::string_view kShared = "moe-shared-expert-intermediate-size";
  if (!arguments.Has(kShared)) return {};
  PENSTOCK_TRY(const int shared, arguments.Count(kShared));
  texts.Set("shared_experts", std::max(1, shared / width));
  texts.Set("shared_hidden", shared);
  return {};
}

Status SetPattern(const MegatronArguments& arguments, const std::string& pattern, int dim,
                  RunTexts& texts) {
  constexpr int kHeadDim = 64;
  PENSTOCK_TRY(const int head_dim, arguments.CountOr("mamba-head-dim", kHeadDim));
  PENSTOCK_TRY(const int heads, arguments.CountOr("mamba-num-heads", 2 * dim / head_dim));
  PENSTOCK_TRY(const int state, arguments.CountOr("mamba-state-dim", 128));
  PENSTOCK_TRY(const int groups, arguments.CountOr("mamba-num-groups", 8));
  texts.Set("pattern", pattern);
  texts.Set("mamba", fmt::format("{},{},{},{}", heads, head_dim, state, groups));
  return {};
}

// A layout without the quotes of its shell.
std::string LayoutOf(const MegatronArguments& arguments) {
  std::string layout(arguments.Text("pipeline-model-parallel-layout"));
  std::erase_if(layout, [](char c) { return c == '\\' || c == '"' || c == '\''; });
  return layout;
}

}  // namespace

Status SetMegatronModel(const MegatronArguments& arguments, int tensor, RunTexts& texts) {
  PENSTOCK_TRY(const int dim, arguments.Count("hidden-size"));
  PENSTOCK_TRY(const int sequence, arguments.Count("seq-length"));
  PENSTOCK_TRY(const int vocabulary, VocabularyOf(arguments, tensor));
  const bool gated = arguments.IsTrue("swiglu");
  PENSTOCK_TRY(const int hidden, arguments.CountOr("ffn-hidden-size", UsualHidden(dim, gated)));
  const std::string pattern = PatternOf(arguments);
  texts.Set("model", "decoder");
  if (pattern.empty()) {
    PENSTOCK_TRY(const int layers, arguments.Count("num-layers"));
    texts.Set("layers", layers);
  } else {
    PENSTOCK_TRY_STATUS(SetPattern(arguments, pattern, dim, texts));
  }
  const std::string_view positions = arguments.Text("position-embedding-type");
  if (pattern.empty() && (positions.empty() || positions == "learned_absolute")) {
    PENSTOCK_TRY(const int most, arguments.CountOr("max-position-embeddings", sequence));
    texts.Set("positions", most);
  }
  texts.Set("dim", dim);
  texts.Set("hidden", hidden);
  texts.Set("sequence", sequence);
  texts.Set("vocabulary", vocabulary);
  texts.Set("gated", gated ? "true" : "false");
  if (!arguments.IsTrue("disable-bias-linear")) texts.Set("linear_biases", "true");
  if (arguments.IsTrue("qk-layernorm")) texts.Set("qk_norm", "true");
  const bool tied = !arguments.IsTrue("untie-embeddings-and-output-weights");
  texts.Set("tied", tied ? "true" : "false");
  if (arguments.Has("mtp-num-layers")) {
    PENSTOCK_TRY(const int predictors, arguments.Count("mtp-num-layers"));
    texts.Set("predictors", predictors);
  }
  PENSTOCK_TRY_STATUS(SetAttention(arguments, texts));
  return SetExperts(arguments, hidden, texts);
}

Status SetMegatronStages(const MegatronArguments& arguments, int ranks, RunTexts& texts) {
  constexpr std::string_view kLayout = "pipeline-model-parallel-layout";
  if (const std::string layout = LayoutOf(arguments); !layout.empty()) {
    const Result<int> stages = StagesOfLayout(layout);
    if (!stages) return InvalidParameter(kLayout, "{}: {}", Quote(layout), stages.error().line());
    if (*stages % ranks != 0) {
      return InvalidParameter(kLayout, "{}: its {} stages are no multiple of {} ranks",
                              Quote(layout), *stages, ranks);
    }
    texts.Set("layout", layout);
    if (*stages > ranks) texts.Set("chunks", *stages / ranks);
    return {};
  }
  if (ranks == 1) return {};
  const std::string pattern = PatternOf(arguments);
  int layers = static_cast<int>(pattern.size());
  if (pattern.empty()) {
    PENSTOCK_TRY(layers, arguments.Count("num-layers"));
  }
  constexpr std::string_view kLast = "decoder-last-pipeline-num-layers";
  if (arguments.Has(kLast)) {
    PENSTOCK_TRY(const int last, arguments.Count(kLast));
    // Megatron-LM requires equal ranks in between, so that otherwise the first one differs, too.
    const bool first_differs = (layers - last) % (ranks - 1) != 0;
    const int between = first_differs ? ranks - 2 : ranks - 1;
    const int others = first_differs ? layers - 2 * last : layers - last;
    if (between < 1 || others < 1 || others % between != 0) {
      return InvalidParameter(kLast, "{}: the other ranks do not divide the other layers", last);
    }
    std::vector<int> counts(static_cast<std::size_t>(ranks), others / between);
    counts.back() = last;
    if (first_differs) counts.front() = last;
    texts.Set("layout", fmt::format("{}", fmt::join(counts, ",")));
    return {};
  }
  constexpr std::string_view kPerStage = "num-layers-per-virtual-pipeline-stage",
                             kStages = "num-virtual-stages-per-pipeline-rank";
  int chunks = 1;
  if (arguments.Has(kStages)) {
    PENSTOCK_TRY(chunks, arguments.Count(kStages));
  } else if (arguments.Has(kPerStage)) {
    PENSTOCK_TRY(const int per_stage, arguments.Count(kPerStage));
    if (layers % (ranks * per_stage) != 0) {
      return InvalidParameter(kPerStage, "{}: {} ranks do not divide {} layers so", per_stage,
                              ranks, layers);
    }
    chunks = layers / ranks / per_stage;
  }
  if (chunks > 1) {
    texts.Set("chunks", chunks);
    PENSTOCK_TRY(const int group,
                 arguments.CountOr("microbatch-group-size-per-virtual-pipeline-stage", ranks));
    if (group != ranks) texts.Set("group", group);
  }
  return {};
}

}  // namespace penstock
