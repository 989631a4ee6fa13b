// Evaluate() and GenerateText().
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/system/cores.h"
#include "base/text/quote.h"
#include "graph/device/device_queue.h"
#include "model_spec/huggingface_config.h"
#include "tokens/files/token_folder.h"
#include "tokens/kinds/open_tokenizer.h"
#include "train/checkpoint/checkpoint.h"
#include "train/data/bigram.h"
#include "train/data/data.h"
#include "train/data/run_tokenizer.h"
#include "train/data/training_data.h"
#include "train/evaluation/language_model.h"
#include "train/evaluation/write_text.h"
#include "train/guard.h"
#include "train/huggingface/follow_weights.h"
#include "train/huggingface/weights.h"
#include "train/model_fits.h"
#include "train/train.h"

namespace penstock {
namespace {

constexpr const char* kRemedy =
    "its training diverged; take an earlier checkpoint, or train again with a smaller optimizer.lr";

// Errors: kUnavailable, naming `where` and a parameter with values that are not finite.
Status CheckFiniteWeights(const LanguageModel& model, const std::string& where) {
  for (const auto& [name, value] : model.Parameters()) {
    if (at::isfinite(value).all().item<bool>()) continue;
    return MakeError(ErrorCode::kUnavailable,
                     "{}: the weights of {} are not finite (NaN or Inf): {}", Printable(where),
                     name, kRemedy);
  }
  return {};
}

// Errors: kUnavailable, naming `where`, if the loss is not finite.
Status CheckFiniteLoss(double loss, const std::string& where) {
  if (std::isfinite(loss)) return {};
  return MakeError(ErrorCode::kUnavailable, "{}: the loss is {}, not finite: {}", Printable(where),
                   loss, kRemedy);
}

// A model in Hugging Face's format with its tokenizer, for evaluation and generation.
class ModelFolder {
 public:
  // Reads the configuration, the tokenizer, which is bytes if the folder has none, and the headers
  // of the weights. Errors: kNotFound or kInvalidArgument, also if the tokenizer has more tokens
  // than the model.
  static Result<ModelFolder> Open(const std::string& folder);

  const OpenedTokenizer& tokenizer() const { return tokenizer_; }
  // Returns lines for the user, as FitModel.
  const std::vector<std::string>& notes() const { return notes_; }
  // Returns the number of learned positions, which no sequence can exceed; nothing if the model has
  // none.
  std::optional<std::int64_t> positions() const { return weights_.Positions(config_); }
  // Returns the tokens that end a text, from generation_config.json or else config.json.
  const std::vector<std::int64_t>& ends_of_text() const { return ends_of_text_; }

  // Checks that the model and a forward of `sequence` tokens fit in memory.
  Status CheckFits(std::int64_t sequence) const;
  // Builds the model for sequences of up to `sequence` tokens and reads its weights. Errors:
  // kInvalidArgument if they do not fit; kUnavailable if they are not finite.
  Result<LanguageModel> Load(std::int64_t sequence) const;

 private:
  ModelFolder(std::string folder, ModelConfig config, HuggingFaceWeights weights)
      : folder_(std::move(folder)), config_(std::move(config)), weights_(std::move(weights)) {}

  std::string folder_;
  ModelConfig config_;
  HuggingFaceWeights weights_;
  OpenedTokenizer tokenizer_;
  std::vector<std::string> notes_;
  std::vector<std::int64_t> ends_of_text_;
};

// As the transformers package, reads generation_config.json and without it config.json.
Result<std::vector<std::int64_t>> EndsOfText(const std::filesystem::path& folder) {
  std::error_code error;
  const auto generation = folder / "generation_config.json";
  const bool has_own = std::filesystem::exists(generation, error);
  return EosTokenIds((has_own ? generation : folder / "config.json").string());
}

Result<ModelFolder> ModelFolder::Open(const std::string& folder) {
  PENSTOCK_TRY(ModelConfig config, ReadHuggingFaceConfig(folder));
  PENSTOCK_TRY(HuggingFaceWeights weights, HuggingFaceWeights::Open(folder));
  ModelFolder opened(folder, std::move(config), std::move(weights));
  PENSTOCK_TRY(const std::string tokenizer, TokenizerOfFolder(folder));
  PENSTOCK_TRY(opened.tokenizer_,
               OpenTokenizer(tokenizer.empty() ? std::string(kByteTokenizer) : tokenizer));
  const std::int64_t tokens = opened.tokenizer_.tokenizer->vocabulary_size();
  if (tokens > opened.config_.vocabulary) {
    return InvalidArgument("{}: the tokenizer {} has {} tokens, but the model only {}", folder,
                           opened.tokenizer_.name(), tokens, opened.config_.vocabulary);
  }
  PENSTOCK_TRY(opened.ends_of_text_, EndsOfText(folder));
  PENSTOCK_TRY(opened.notes_, FitModel(opened.weights_, folder, opened.config_));
  return opened;
}

Status ModelFolder::CheckFits(std::int64_t sequence) const {
  ModelConfig config = config_;
  config.sequence = sequence;
  PENSTOCK_TRY(const std::vector<LayerRange> ranges, SplitLayers(config.layers, 1, {}));
  return CheckModelFits(config, ranges, sequence);
}

Result<LanguageModel> ModelFolder::Load(std::int64_t sequence) const {
  ModelConfig config = config_;
  config.sequence = sequence;
  PENSTOCK_TRY(LanguageModel model, LanguageModel::Build(config));
  for (const auto& [name, value] : model.AllCopies()) {
    PENSTOCK_TRY_STATUS(weights_.Read(config, name, Layout(value.sizes().vec()), value));
  }
  PENSTOCK_TRY_STATUS(CheckFiniteWeights(model, folder_));
  return model;
}

constexpr std::int64_t kDefaultWindow = 128;  // tokens
constexpr int kMostGenerated = 1'000'000;     // tokens

Result<Checkpoint> OpenFor(const std::string& path, bool ema) {
  return ema ? OpenFullCheckpoint(path) : OpenCheckpoint(path);
}

void MoveModel(LanguageModel& model, c10::Device device) {
  for (const auto& stage : model.stages) MoveStage(*stage, device);
}

Result<LanguageModel> ModelOf(Checkpoint& checkpoint, bool ema, c10::Device device) {
  PENSTOCK_TRY(LanguageModel model, LanguageModel::Build(checkpoint.info.config.model));
  PENSTOCK_TRY_STATUS(ema ? SetAverages(checkpoint, model) : SetWeights(checkpoint, model));
  PENSTOCK_TRY_STATUS(CheckFiniteWeights(model, checkpoint.path()));
  MoveModel(model, device);
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
  config.tokenizer = tokenizer.name();
  return {};
}

Result<EvalSummary> EvaluateUnguarded(const std::string& path, const std::string& data, bool ema,
                                      const std::string& device_name) {
  PENSTOCK_TRY(const c10::Device device, OpenDevice(device_name));
  PENSTOCK_TRY(Checkpoint checkpoint, OpenFor(path, ema));
  TrainConfig& config = checkpoint.info.config;
  PENSTOCK_TRY_STATUS(UseData(checkpoint, data));
  PENSTOCK_TRY(const TrainingData text, LoadTrainingData(config));
  PENSTOCK_TRY_STATUS(SetDocumentEnd(text.tokenizer, config));
  const std::int64_t sequence = config.model.sequence;
  PENSTOCK_TRY(const std::vector<LayerRange> ranges, SplitLayers(config.model.layers, 1, {}));
  PENSTOCK_TRY_STATUS(CheckModelFits(config.model, ranges, sequence, config.max_memory));
  PENSTOCK_TRY(const LanguageModel model, ModelOf(checkpoint, ema, device));
  EvalSummary summary;
  summary.notes = text.notes;
  summary.held_out_loss = EvaluateText(model, text.held_out(), Cores());
  PENSTOCK_TRY_STATUS(CheckFiniteLoss(summary.held_out_loss, checkpoint.path()));
  summary.predicted =
      static_cast<std::int64_t>(EvaluatedLength(text.held_out().size(), sequence)) - 1;
  summary.unit = text.unit();
  summary.tokenizer = text.tokenizer.name();
  summary.step = checkpoint.info.step;
  if (text.is_bytes()) {
    summary.baseline_loss =
        Bigram(text.bytes->train).MeanNats(EvaluatedPart(text.bytes->held_out, sequence));
  }
  return summary;
}

// Appends the tokens of a tokenized folder.
Status ReadTokens(const std::string& data, const OpenedTokenizer& tokenizer,
                  std::vector<TokenId>& ids, std::vector<std::string>& notes) {
  PENSTOCK_TRY(const TokenFolder folder, TokenFolder::Open(data));
  if (folder.index().digest != tokenizer.digest) {
    return InvalidArgument("{} was tokenized by another tokenizer than {}", data, tokenizer.name());
  }
  std::vector<std::int64_t> tokens(folder.size());
  folder.Read(0, tokens);
  if (std::string note = folder.note(); !note.empty()) notes.push_back(std::move(note));
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  return {};
}

// Returns the tokens of all texts, one after the other.
Result<std::vector<TokenId>> TokensOf(const std::string& data, const OpenedTokenizer& tokenizer,
                                      std::vector<std::string>& notes) {
  std::vector<TokenId> ids;
  if (IsTokenFolder(data)) {
    PENSTOCK_TRY_STATUS(ReadTokens(data, tokenizer, ids, notes));
    return ids;
  }
  PENSTOCK_TRY(const std::vector<std::string> texts, ReadTexts(data));
  const std::unique_ptr<Encoder> encoder = tokenizer.tokenizer->MakeEncoder();
  for (const std::string& text : texts) {
    PENSTOCK_TRY_STATUS(encoder->Encode(text, SpecialTokens::kAdd, ids));
  }
  return ids;
}

// Returns the tokens per window: as given, or the default if it is 0.
Result<std::int64_t> WindowOf(const std::string& folder, std::optional<std::int64_t> positions,
                              std::int64_t sequence) {
  if (!positions || sequence <= *positions) {
    if (sequence > 0) return sequence;
    return std::min(kDefaultWindow, positions.value_or(kDefaultWindow));
  }
  return InvalidParameter("sequence", "{}: {} has only {} positions (n_positions)", sequence,
                          folder, *positions);
}

Result<EvalSummary> EvaluateFolder(const std::string& folder, const std::string& data,
                                   std::int64_t sequence, const std::string& device_name) {
  PENSTOCK_TRY(const c10::Device device, OpenDevice(device_name));
  PENSTOCK_TRY(const ModelFolder opened, ModelFolder::Open(folder));
  PENSTOCK_TRY(sequence, WindowOf(folder, opened.positions(), sequence));
  PENSTOCK_TRY_STATUS(opened.CheckFits(sequence));
  EvalSummary summary;
  PENSTOCK_TRY(const std::vector<TokenId> ids, TokensOf(data, opened.tokenizer(), summary.notes));
  summary.unit = UnitOf(opened.tokenizer());
  summary.tokenizer = opened.tokenizer().name();
  std::ranges::copy(opened.notes(), std::back_inserter(summary.notes));
  if (std::ssize(ids) <= sequence) {
    return InvalidArgument("{} has {} {}s; a window of {} needs at least {}", data, ids.size(),
                           summary.unit, sequence, sequence + 1);
  }
  PENSTOCK_TRY(LanguageModel model, opened.Load(sequence));
  MoveModel(model, device);
  summary.held_out_loss = EvaluateText(model, ids, Cores());
  PENSTOCK_TRY_STATUS(CheckFiniteLoss(summary.held_out_loss, folder));
  summary.predicted = static_cast<std::int64_t>(EvaluatedLength(ids.size(), sequence)) - 1;
  return summary;
}

Status CheckOptions(const GenerateOptions& options) {
  if (options.tokens < 0 || options.tokens > kMostGenerated) {
    return InvalidParameter("tokens", "{}: must be from 0 to {}", options.tokens, kMostGenerated);
  }
  if (options.top_k < 0) return InvalidParameter("top_k", "{}: must be at least 0", options.top_k);
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return InvalidParameter("top_p", "{}: must be above 0 and at most 1", options.top_p);
  }
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature)) {
    return InvalidParameter("temperature", "{}: must be a finite number of at least 0",
                            options.temperature);
  }
  return {};
}

// Generates with a model in Hugging Face's format.
Result<GeneratedText> GenerateWithFolder(const std::string& folder, WriteOptions write,
                                         c10::Device device) {
  PENSTOCK_TRY(const ModelFolder opened, ModelFolder::Open(folder));
  if (!opened.tokenizer().files.empty()) write.tokenizer = opened.tokenizer().tokenizer.get();
  write.ends_of_text = opened.ends_of_text();
  const std::int64_t prompt = std::ssize(StartOfText(write));
  std::int64_t longest = prompt + write.tokens;
  if (const auto positions = opened.positions()) {
    if (prompt > *positions) {
      return InvalidArgument("the prompt has {} tokens, but {} has only {} positions (n_positions)",
                             prompt, folder, *positions);
    }
    longest = std::min(longest, *positions);
  }
  PENSTOCK_TRY(LanguageModel model, opened.Load(longest));
  MoveModel(model, device);
  return GeneratedText{WriteText(model, write), opened.tokenizer().name(), opened.notes()};
}

Result<GeneratedText> GenerateUnguarded(const std::string& path, const GenerateOptions& options) {
  PENSTOCK_TRY_STATUS(CheckOptions(options));
  PENSTOCK_TRY(const c10::Device device, OpenDevice(options.device));
  WriteOptions write;
  write.prompt = options.prompt;
  write.tokens = options.tokens;
  write.sampling = {options.temperature, options.top_k, options.top_p};
  write.seed = options.seed;
  if (IsHuggingFaceFolder(path)) {
    if (options.ema) return InvalidArgument("{} has no moving averages of its weights", path);
    return GenerateWithFolder(path, std::move(write), device);
  }
  PENSTOCK_TRY(Checkpoint checkpoint, OpenFor(path, options.ema));
  PENSTOCK_TRY(const LanguageModel model, ModelOf(checkpoint, options.ema, device));
  PENSTOCK_TRY(const OpenedTokenizer tokenizer,
               TokenizerOfRun(checkpoint.path(), checkpoint.info.config.data));
  if (!tokenizer.files.empty()) write.tokenizer = tokenizer.tokenizer.get();
  write.ends_of_text = tokenizer.ends_of_text;
  return GeneratedText{WriteText(model, write), tokenizer.name(), {}};
}

}  // namespace

Result<EvalSummary> Evaluate(const std::string& checkpoint, const std::string& data, bool ema,
                             const std::string& device) {
  return Guard<EvalSummary>([&] { return EvaluateUnguarded(checkpoint, data, ema, device); });
}

Result<EvalSummary> EvaluateHuggingFace(const std::string& folder, const std::string& data,
                                        std::int64_t sequence, const std::string& device) {
  return Guard<EvalSummary>([&] { return EvaluateFolder(folder, data, sequence, device); });
}

Result<GeneratedText> GenerateText(const std::string& checkpoint, const GenerateOptions& options) {
  return Guard<GeneratedText>([&] { return GenerateUnguarded(checkpoint, options); });
}

}  // namespace penstock
