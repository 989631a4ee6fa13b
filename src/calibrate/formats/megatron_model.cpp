#include "calibrate/formats/megatron_model.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/text/numbers.h"
#include "base/text/quote.h"

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
  if (dense_layers > 0) texts.Set("dense_layers", dense_layers);
  constexpr std::string_view kShared = "moe-shared-expert-intermediate-size";
  if (!arguments.Has(kShared)) return {};
  PENSTOCK_TRY(const int shared, arguments.Count(kShared));
  if (shared % width != 0) {
    return InvalidParameter(kShared, "{}: no multiple of the experts' width, {}", shared, width);
  }
  texts.Set("shared_experts", shared / width);
  return {};
}

// The stages of "Et*3|(tt|)*29L": a part ends at each '|', also in repetitions.
Result<int> CountLayoutStages(std::string_view text) {
  const auto refuse = [&] {
    return InvalidParameter("pipeline-model-parallel-layout", "{}: cannot be read", Quote(text));
  };
  std::int64_t stages = 1, in_group = 0;
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(') inside = true;
    if (text[i] == '|') ++(inside ? in_group : stages);
    if (text[i] != ')') continue;
    std::int64_t times = 1;
    const std::size_t digits = text.substr(i + 1).starts_with('*') ? i + 2 : text.size();
    if (digits < text.size()) {
      const std::size_t end = std::min(text.find_first_not_of("0123456789", digits), text.size());
      const auto number = ParseInt(text.substr(digits, end - digits));
      if (!number || *number < 1) return refuse();
      times = *number;
    }
    stages += times * in_group;
    in_group = 0;
    inside = false;
  }
  if (inside || stages > 100'000) return refuse();
  return static_cast<int>(stages);
}

}  // namespace

Status SetMegatronModel(const MegatronArguments& arguments, int tensor, RunTexts& texts) {
  for (const std::string_view name : {"hybrid-layer-pattern", "hybrid-override-pattern"}) {
    if (!arguments.Has(name)) continue;
    return InvalidParameter(name, "{}: only named models have a pattern of layers",
                            Quote(arguments.Text(name)));
  }
  PENSTOCK_TRY(const int dim, arguments.Count("hidden-size"));
  PENSTOCK_TRY(const int layers, arguments.Count("num-layers"));
  PENSTOCK_TRY(const int sequence, arguments.Count("seq-length"));
  PENSTOCK_TRY(const int vocabulary, VocabularyOf(arguments, tensor));
  const bool gated = arguments.IsTrue("swiglu");
  PENSTOCK_TRY(const int hidden, arguments.CountOr("ffn-hidden-size", UsualHidden(dim, gated)));
  const bool has_positions = !arguments.Has("position-embedding-type") ||
                             arguments.Text("position-embedding-type") == "learned_absolute";
  const bool has_biases = !arguments.IsTrue("disable-bias-linear");
  const bool is_gpt = has_positions && has_biases && !gated && !arguments.Has("num-experts");
  texts.Set("model", is_gpt ? "gpt" : "decoder");
  texts.Set("layers", layers);
  texts.Set("dim", dim);
  texts.Set("hidden", hidden);
  texts.Set("sequence", sequence);
  texts.Set("vocabulary", vocabulary);
  if (!is_gpt) {
    texts.Set("gated", gated ? "true" : "false");
    if (has_biases) texts.Set("linear_biases", "true");
  }
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
  if (arguments.Has(kLayout)) {
    PENSTOCK_TRY(const int stages, CountLayoutStages(arguments.Text(kLayout)));
    if (stages % ranks != 0) {
      return InvalidParameter(kLayout, "{}: its {} stages are no multiple of {} ranks",
                              Quote(arguments.Text(kLayout)), stages, ranks);
    }
    texts.Set("layout", arguments.Text(kLayout));
    if (stages > ranks) texts.Set("chunks", stages / ranks);
    return {};
  }
  if (ranks == 1) return {};
  PENSTOCK_TRY(const int layers, arguments.Count("num-layers"));
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
