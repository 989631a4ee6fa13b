// Evaluate() and GenerateText().
#include <ATen/ops/isfinite.h>

#include <cmath>

#include "base/files.h"
#include "model/huggingface.h"
#include "train/checkpoint/checkpoint.h"
#include "train/data/bigram.h"
#include "train/data/data.h"
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

Result<EvalSummary> EvaluateUnguarded(const std::string& path, const std::string& data, bool ema) {
  PENSTOCK_TRY(Checkpoint checkpoint, OpenFor(path, ema));
  CheckpointInfo& info = checkpoint.info;
  if (!data.empty()) info.config.data.path = data;
  PENSTOCK_TRY(const Corpus corpus, LoadCorpus(info.config.data.path, info.config.data.held_out));
  const std::int64_t sequence = info.config.model.sequence;
  PENSTOCK_TRY_STATUS(CheckLength(corpus, sequence));
  PENSTOCK_TRY(const LanguageModel model, ModelOf(checkpoint, ema));
  const auto part = EvaluatedPart(corpus.held_out, sequence);
  EvalSummary summary;
  summary.held_out_loss = EvaluateText(model, corpus.held_out, Cores());
  summary.baseline_loss = Bigram(corpus.train).MeanNats(part);
  summary.bytes = static_cast<std::int64_t>(part.size()) - 1;
  summary.step = info.step;
  return summary;
}

Result<EvalSummary> EvaluateFolder(const std::string& folder, const std::string& data,
                                   std::int64_t sequence) {
  PENSTOCK_TRY(ModelConfig config, ReadHuggingFaceConfig(folder));
  config.sequence = sequence;
  PENSTOCK_TRY(const LanguageModel model, LanguageModel::Build(config));
  PENSTOCK_TRY(const HuggingFaceWeights weights, HuggingFaceWeights::Open(folder));
  for (const auto& [name, value] : model.AllCopies()) {
    PENSTOCK_TRY_STATUS(weights.Read(config, name, value.sizes(), 0, value));
  }
  PENSTOCK_TRY(const std::string text, ReadFile(data));
  const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(text.data()),
                                            text.size());
  if (std::ssize(bytes) <= sequence) {
    return InvalidArgument("{} has {} bytes; a window of {} needs at least {}", data, bytes.size(),
                           sequence, sequence + 1);
  }
  EvalSummary summary;
  summary.held_out_loss = EvaluateText(model, bytes, Cores());
  summary.bytes = static_cast<std::int64_t>(EvaluatedPart(bytes, sequence).size()) - 1;
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
  PENSTOCK_TRY(Checkpoint checkpoint, OpenFor(path, options.ema));
  PENSTOCK_TRY(const LanguageModel model, ModelOf(checkpoint, options.ema));
  WriteOptions write;
  write.prompt = options.prompt;
  write.tokens = options.tokens;
  write.sampling = {options.temperature, options.top_k, options.top_p};
  write.seed = options.seed;
  return WriteText(model, write);
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
