// LanguageModel: a whole model as a sequence of stage modules, for evaluation, text generation and
// checkpoints. Any partition into stages is the same model.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/model.h"
#include "train/data/token_span.h"

namespace penstock {

class DistributedModel;

struct LanguageModel {
  ModelConfig config;
  std::vector<std::shared_ptr<StageModule>> stages;  // null for stages of other processes

  // Partitions the model into stages with `counts` layers each, or about equally if `counts` is
  // empty. Builds the stages for which `here` returns true, or all if it is empty.
  static Result<LanguageModel> Build(const ModelConfig& config, int stages = 1,
                                     std::span<const std::int64_t> counts = {},
                                     const std::function<bool(int stage)>& here = {});

  // Returns the outputs of the last stage for tokens [batch, length], without gradients. The logits
  // [batch, length, vocabulary] come first.
  std::vector<at::Tensor> Outputs(const at::Tensor& tokens) const;
  at::Tensor Logits(const at::Tensor& tokens) const { return Outputs(tokens).front(); }
  // Returns the loss that the model defines against the targets, in nats per token.
  at::Tensor Loss(const at::Tensor& tokens, const at::Tensor& targets) const;

  // Returns the parameters by name, in the order of the model; for a parameter that several stages
  // share, the first copy. They share the modules' memory.
  std::vector<std::pair<std::string, at::Tensor>> Parameters() const;
  // Returns all tensors, with every copy.
  std::vector<std::pair<std::string, at::Tensor>> AllCopies() const;
};

// Converts tokens to a tensor [samples, length] int64; `tokens` contains one sample after another.
at::Tensor ToTokens(TokenSpan tokens, std::int64_t samples);

// Returns the mean nats per token over the text's complete windows of `config.sequence` targets.
// The model does not see the text before a window. The result does not depend on the number of
// threads. After `stop` is set, returns soon with a meaningless result. Requires: CheckLength
// (data.h).
double EvaluateText(const LanguageModel& model, TokenSpan text, int threads,
                    const std::atomic<bool>* stop = nullptr);
// Evaluates on all processes of the model. Each may use another number of threads.
double EvaluateText(DistributedModel& model, TokenSpan text, int threads);
// Returns the part of the text that EvaluateText evaluates, for the baseline.
std::span<const std::uint8_t> EvaluatedPart(std::span<const std::uint8_t> text,
                                            std::int64_t sequence);
// Returns the length of that part of a text of `size` tokens.
std::size_t EvaluatedLength(std::size_t size, std::int64_t sequence);

}  // namespace penstock
