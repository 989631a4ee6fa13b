// Evaluate() and GenerateText().
#include <ATen/ops/isfinite.h>

#include <cmath>

#include "train/checkpoint/checkpoint.h"
#include "train/data/bigram.h"
#include "train/data/data.h"
#include "train/evaluation/language_model.h"
#include "train/guard.h"
#include "train/setup.h"
#include "train/train.h"

namespace penstock {
namespace {

Result<LanguageModel> ModelOf(Checkpoint& checkpoint) {
  PENSTOCK_TRY(LanguageModel model, LanguageModel::Build(checkpoint.info.config.model));
  PENSTOCK_TRY_STATUS(SetWeights(checkpoint, model));
  for (const auto& [name, value] : model.Parameters()) {
    if (at::isfinite(value).all().item<bool>()) continue;
    return InvalidArgument(
        "{}: the weights of {} are not finite (NaN or Inf): the run diverged; take an earlier "
        "checkpoint, or train again with a smaller optimizer.lr",
        checkpoint.path(), name);
  }
  return model;
}

Result<EvalSummary> EvaluateUnguarded(const std::string& path, const std::string& data) {
  PENSTOCK_TRY(Checkpoint checkpoint, OpenCheckpoint(path));
  CheckpointInfo& info = checkpoint.info;
  if (!data.empty()) info.config.data.path = data;
  PENSTOCK_TRY(const Corpus corpus, LoadCorpus(info.config.data.path, info.config.data.held_out));
  const std::int64_t sequence = info.config.model.sequence;
  PENSTOCK_TRY_STATUS(CheckLength(corpus, sequence));
  PENSTOCK_TRY(const LanguageModel model, ModelOf(checkpoint));
  const auto part = EvaluatedPart(corpus.held_out, sequence);
  EvalSummary summary;
  summary.held_out_loss = EvaluateText(model, corpus.held_out, Cores());
  summary.baseline_loss = Bigram(corpus.train).MeanNats(part);
  summary.bytes = static_cast<std::int64_t>(part.size()) - 1;
  summary.step = info.step;
  return summary;
}

Result<std::string> GenerateTextUnguarded(const std::string& path, const GenerateOptions& options) {
  if (options.bytes < 0) return InvalidArgument("bytes {}: must be at least 0", options.bytes);
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature)) {
    return InvalidArgument("temperature {}: must be a finite number of at least 0",
                           options.temperature);
  }
  PENSTOCK_TRY(Checkpoint checkpoint, OpenCheckpoint(path));
  PENSTOCK_TRY(const LanguageModel model, ModelOf(checkpoint));
  return WriteText(model, {options.prompt, options.bytes, options.temperature, options.seed});
}

}  // namespace

Result<EvalSummary> Evaluate(const std::string& checkpoint, const std::string& data) {
  return Guard<EvalSummary>([&] { return EvaluateUnguarded(checkpoint, data); });
}

Result<std::string> GenerateText(const std::string& checkpoint, const GenerateOptions& options) {
  return Guard<std::string>([&] { return GenerateTextUnguarded(checkpoint, options); });
}

}  // namespace penstock
