#include "train/evaluation/language_model.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <future>
#include <numeric>
#include <set>

#include "base/exception_line.h"
#include "base/index.h"
#include "train/data/data.h"
#include "train/evaluation/distributed_model.h"
#include "train/model_fits.h"

namespace penstock {
namespace {

constexpr std::int64_t kEvaluatedAtOnce = 4096;  // tokens; enough to keep matmuls efficient

// Returns the sum of the windows' losses on the process of the last stage, else 0. `tokens`
// contains the windows and the last target.
double WindowLoss(DistributedModel& model, std::int64_t number, TokenSpan tokens,
                  std::int64_t windows) {
  const at::NoGradGuard no_grad;
  const auto outputs = model.Forward(number, ToTokens(tokens.first(tokens.size() - 1), windows));
  if (!outputs || !model.has_last()) return 0;
  const at::Tensor targets = ToTokens(tokens.subspan(1), windows).to(outputs->front().device());
  const at::Tensor loss = model.last().Loss(*outputs, targets);
  return loss.item<double>() * static_cast<double>(windows);
}

}  // namespace

Result<LanguageModel> LanguageModel::Build(const ModelConfig& config, int stages,
                                           std::span<const std::int64_t> counts,
                                           const std::function<bool(int stage)>& here) {
  PENSTOCK_TRY(const std::vector<LayerRange> ranges, SplitLayers(config.layers, stages, counts));
  if (!here) PENSTOCK_TRY_STATUS(CheckModelFits(config, ranges, 0));
  LanguageModel model{config, {}};
  for (int stage = 0; stage < stages; ++stage) {
    std::shared_ptr<StageModule>& module = model.stages.emplace_back();
    if (here && !here(stage)) continue;
    PENSTOCK_TRY(module, BuildStage(config, ranges[stage]));
  }
  return model;
}

std::vector<at::Tensor> LanguageModel::Outputs(const at::Tensor& tokens) const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> values = {tokens.to(DeviceOf(*stages.front()))};
  for (const auto& stage : stages) values = stage->ForwardAll(values);
  return values;
}

at::Tensor LanguageModel::Loss(const at::Tensor& tokens, const at::Tensor& targets) const {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> outputs = Outputs(tokens);
  return stages.back()->Loss(outputs, targets.to(outputs.front().device()));
}

std::vector<std::pair<std::string, at::Tensor>> LanguageModel::Parameters() const {
  std::vector<std::pair<std::string, at::Tensor>> parameters = AllCopies();
  std::set<std::string> known;
  std::erase_if(parameters, [&](const auto& each) { return !known.insert(each.first).second; });
  return parameters;
}

std::vector<std::pair<std::string, at::Tensor>> LanguageModel::AllCopies() const {
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  for (const auto& stage : stages) {
    if (stage == nullptr) continue;
    for (const auto& parameter : stage->named_parameters()) {
      parameters.emplace_back(parameter.key(), parameter.value().detach());
    }
  }
  return parameters;
}

at::Tensor ToTokens(TokenSpan tokens, std::int64_t samples) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  at::Tensor tensor = at::empty({samples, count / samples}, at::kLong);
  tokens.CopyTo(tensor.mutable_data_ptr<std::int64_t>());
  return tensor;
}

std::span<const std::uint8_t> EvaluatedPart(std::span<const std::uint8_t> text,
                                            std::int64_t sequence) {
  return text.first(EvaluatedLength(text.size(), sequence));
}

std::size_t EvaluatedLength(std::size_t size, std::int64_t sequence) {
  const std::size_t length = sequence;
  return (size - 1) / length * length + 1;
}

double EvaluateText(const LanguageModel& model, TokenSpan text, int threads,
                    const std::atomic<bool>* stop) {
  DistributedModel here(model, stop);
  return EvaluateText(here, text, threads);
}

double EvaluateText(DistributedModel& model, TokenSpan text, int threads) {
  const std::int64_t sequence = model.config().sequence;
  const TokenSpan part = text.first(EvaluatedLength(text.size(), sequence));
  const auto windows = static_cast<std::int64_t>(part.size() - 1) / sequence;
  const std::int64_t at_once = std::max<std::int64_t>(1, kEvaluatedAtOnce / sequence);
  const std::int64_t blocks = (windows + at_once - 1) / at_once;
  std::vector<double> sums(blocks);
  const std::int64_t number = model.Reserve(blocks + 1);
  // Each thread runs every n-th block. Torch's own threads would divide single operators, and wait.
  const auto run = [&](std::int64_t first) {
    at::set_num_threads(1);
    for (std::int64_t block = first; block < blocks && !model.stopped(); block += threads) {
      const std::int64_t begin = block * at_once;
      const std::int64_t samples = std::min(at_once, windows - begin);
      const TokenSpan tokens = part.subspan(begin * sequence, Index(samples * sequence) + 1);
      sums[block] = WindowLoss(model, number + block, tokens, samples);
    }
  };
  std::vector<std::future<void>> others;
  const auto run_or_abort = [&](std::int64_t first) {
    try {
      run(first);
    } catch (const std::exception& error) {
      // Other threads and processes may wait for results of this one.
      model.Abort({ErrorCode::kUnavailable, ExceptionLine(error)});
      throw;
    }
  };
  for (int i = 1; i < threads; ++i) {
    others.push_back(std::async(std::launch::async, run_or_abort, i));
  }
  run_or_abort(0);
  for (std::future<void>& other : others) other.get();
  const auto all = model.FromLast(number + blocks, std::move(sums)).value_or(std::vector<double>());
  return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(windows);
}

}  // namespace penstock
