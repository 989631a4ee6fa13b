// Evaluate() and GenerateText().
#include <ATen/ops/isfinite.h>

#include <cmath>

#include "base/files.h"
#include "model/huggingface.h"
#include "tokens/files/token_folder.h"
#include "train/checkpoint/checkpoint.h"
#include "train/data/bigram.h"
#include "train/data/data.h"
#include "train/data/run_tokenizer.h"
#include "train/data/training_data.h"
#include "train/evaluation/language_model.h"
#include "train/evaluation/write_text.h"
#include "train/guard.h"
#include "train/huggingface/weights.h"
#include "train/setup.h"
#include "train/train.h"

namespace penstock {
namespace {

Result<Checkpoint> OpenFor(const std::string& path, bool ema) {
  return ema ? OpenFullCheckpoint(path) : OpenCheckpoint(path);
}

Result<LanguageModel> ModelOf(Checkpoint& checkpoint, bool ema) {
  PENSTOCK_TRY(LanguageModel model, LanguageModel::Build(checkpoint.info.config.model));
  PENSTOCK_TRY_STATUS(ema ? SetAverages(checkpoint, model) : SetWeights(checkpoint, model));
  for (const auto& [name, value] : model.Parameters()) {
    if (at::isfinite(value).all().item<bool>()) continue;
    return InvalidArgument(
        "{}: the weights of {} are not finite (NaN or Inf): the run diverged; take an earlier "
        "checkpoint, or train again with a smaller optimizer.lr",
        checkpoint.path(), name);
  }
  return model;
}

// Makes the run's data `data`, if it is given, and opens the run's own tokenizer in place of one
// that may have moved since.
Status UseData(Checkpoint& checkpoint, const std::string& data) {
  DataConfig& config = checkpoint.info.config.data;
  PENSTOCK_TRY(const OpenedTokenizer tokenizer, TokenizerOfRun(checkpoint.path(), config));
  config.lengths.clear();  // of training samples only; this text may have none of some length
  if (!data.empty()) {
    config.path = data;
    config.blend.clear();
  }
  const bool is_text = config.blend.empty() && !IsTokenFolder(config.path);
  config.tokenizer = is_text && !tokenizer.files.empty() ? tokenizer.files.front() : "";
  return {};
}

Result<EvalSummary> EvaluateUnguarded(const std::string& path, const std::string& data, bool ema) {
  PENSTOCK_TRY(Checkpoint checkpoint, OpenFor(path, ema));
  TrainConfig& config = checkpoint.info.config;
  PENSTOCK_TRY_STATUS(UseData(checkpoint, data));
  PENSTOCK_TRY(const TrainingData text, LoadTrainingData(config));
  PENSTOCK_TRY_STATUS(SetDocumentEnd(text.tokenizer, config));
  PENSTOCK_TRY(const LanguageModel model, ModelOf(checkpoint, ema));
  const std::int64_t sequence = config.model.sequence;
  EvalSummary summary;
  summary.held_out_loss = EvaluateText(model, text.held_out(), Cores());
  summary.predicted =
      static_cast<std::int64_t>(EvaluatedLength(text.held_out().size(), sequence)) - 1;
  summary.unit = text.unit();
  summary.step = checkpoint.info.step;
  if (text.is_bytes()) {
    summary.baseline_loss =
        Bigram(text.bytes->train).MeanNats(EvaluatedPart(text.bytes->held_out, sequence));
  }
  return summary;
}

// Returns the tokens of the whole text.
Result<std::vector<TokenId>> EncodeText(const std::string& text, const Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  PENSTOCK_TRY_STATUS(tokenizer.MakeEncoder()->Encode(text, SpecialTokens::kAdd, ids));
  return ids;
}

// A model in Hugging Face's format with the tokenizer of its folder, or bytes if that has none.
struct FolderModel {
  LanguageModel model;
  OpenedTokenizer tokenizer;
};

Result<FolderModel> OpenFolder(const std::string& folder, std::int64_t sequence) {
  PENSTOCK_TRY(ModelConfig config, ReadHuggingFaceConfig(folder));
  config.sequence = sequence;
  PENSTOCK_TRY(OpenedTokenizer tokenizer,
               OpenTokenizer(HasTokenizer(folder) ? folder : std::string(kByteTokenizer)));
  if (tokenizer.tokenizer->vocabulary_size() > config.vocabulary) {
    return InvalidArgument("{}: the tokenizer has {} tokens, but the model only {}", folder,
                           tokenizer.tokenizer->vocabulary_size(), config.vocabulary);
  }
  PENSTOCK_TRY(LanguageModel model, LanguageModel::Build(config));
  PENSTOCK_TRY(const HuggingFaceWeights weights, HuggingFaceWeights::Open(folder));
  for (const auto& [name, value] : model.AllCopies()) {
    PENSTOCK_TRY_STATUS(weights.Read(config, name, value.sizes(), 0, value));
  }
  return FolderModel{std::move(model), std::move(tokenizer)};
}

Result<EvalSummary> EvaluateFolder(const std::string& folder, const std::string& data,
                                   std::int64_t sequence) {
  PENSTOCK_TRY(const FolderModel opened, OpenFolder(folder, sequence));
  PENSTOCK_TRY(const std::string text, ReadFile(data));
  PENSTOCK_TRY(const std::vector<TokenId> ids, EncodeText(text, *opened.tokenizer.tokenizer));
  EvalSummary summary;
  summary.unit = UnitOf(opened.tokenizer);
  if (std::ssize(ids) <= sequence) {
    return InvalidArgument("{} has {} {}s; a window of {} needs at least {}", data, ids.size(),
                           summary.unit, sequence, sequence + 1);
  }
  summary.held_out_loss = EvaluateText(opened.model, ids, Cores());
  summary.predicted = static_cast<std::int64_t>(EvaluatedLength(ids.size(), sequence)) - 1;
  return summary;
}

Result<std::string> GenerateTextUnguarded(const std::string& path, const GenerateOptions& options) {
  if (options.tokens < 0) return InvalidArgument("tokens {}: must be at least 0", options.tokens);
  if (options.top_k < 0) return InvalidArgument("top_k {}: must be at least 0", options.top_k);
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return InvalidArgument("top_p {}: must be above 0 and at most 1", options.top_p);
  }
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature)) {
    return InvalidArgument("temperature {}: must be a finite number of at least 0",
                           options.temperature);
  }
  WriteOptions write;
  write.prompt = options.prompt;
  write.tokens = options.tokens;
  write.sampling = {options.temperature, options.top_k, options.top_p};
  write.seed = options.seed;
  const auto written = [&](const LanguageModel& model, const OpenedTokenizer& tokenizer) {
    if (!tokenizer.files.empty()) write.tokenizer = tokenizer.tokenizer.get();
    return WriteText(model, write);
  };
  if (IsHuggingFaceFolder(path)) {
    if (options.ema) return InvalidArgument("{} has no moving averages of its weights", path);
    // No text has more tokens than this.
    const auto most = std::ssize(options.prompt) + options.tokens + 2;
    PENSTOCK_TRY(const FolderModel opened, OpenFolder(path, most));
    return written(opened.model, opened.tokenizer);
  }
  PENSTOCK_TRY(Checkpoint checkpoint, OpenFor(path, options.ema));
  PENSTOCK_TRY(const LanguageModel model, ModelOf(checkpoint, options.ema));
  PENSTOCK_TRY(const OpenedTokenizer tokenizer,
               TokenizerOfRun(checkpoint.path(), checkpoint.info.config.data));
  return written(model, tokenizer);
}

}  // namespace

Result<EvalSummary> Evaluate(const std::string& checkpoint, const std::string& data, bool ema) {
  return Guard<EvalSummary>([&] { return EvaluateUnguarded(checkpoint, data, ema); });
}

Result<EvalSummary> EvaluateHuggingFace(const std::string& folder, const std::string& data,
                                        std::int64_t sequence) {
  return Guard<EvalSummary>([&] { return EvaluateFolder(folder, data, sequence); });
}

Result<std::string> GenerateText(const std::string& checkpoint, const GenerateOptions& options) {
  return Guard<std::string>([&] { return GenerateTextUnguarded(checkpoint, options); });
}

}  // namespace penstock
