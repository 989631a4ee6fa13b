#include "train/data/training_data.h"

#include <algorithm>

#include "base/index.h"
#include "base/units.h"
#include "config/sequence_lengths.h"
#include "tokens/files/tokenize.h"
#include "train/data/blend.h"
#include "train/data/document_samples.h"
#include "train/data/run_tokenizer.h"
#include "train/data/token_samples.h"
#include "train/data/token_set.h"

namespace penstock {
namespace {

std::string Millions(std::uint64_t tokens) {
  return fmt::format("{:.2f} million tokens", static_cast<double>(tokens) * 1e-6);
}

bool UsesBytes(const DataConfig& data) {
  if (!data.blend.empty() || IsTokenFolder(data.path)) return false;
  return data.tokenizer.empty() || data.tokenizer == kByteTokenizer;
}

// Makes the documents of a set the samples, in place of windows of it.
Status UseDocuments(const TrainConfig& config, TokenSet set, TrainingData& data) {
  PENSTOCK_TRY(const TokenId end, EndOfDocument(data.tokenizer, "data.lengths"));
  PENSTOCK_TRY(DocumentSamples samples,
               DocumentSamples::Make(std::move(set), end, MicrobatchLengths(config), config.batch,
                                     config.seed));
  data.description +=
      fmt::format("; documents as samples, {:.0f}% padding", 100 * samples.padding());
  data.samples = std::make_shared<DocumentSamples>(std::move(samples));
  return {};
}

Status CheckVocabulary(const ModelConfig& model, const OpenedTokenizer& tokenizer) {
  const std::int64_t vocabulary = tokenizer.tokenizer->vocabulary_size();
  if (vocabulary <= model.vocabulary) return {};
  return InvalidParameter("model.vocabulary",
                          "{} is less than the {} tokens of the tokenizer {}: set it to {} or more",
                          model.vocabulary, vocabulary, tokenizer.name(), vocabulary);
}

// Refuses data that was tokenized by another tokenizer than the one that data.tokenizer names.
Status CheckTokenizerOfData(const DataConfig& config, const OpenedTokenizer& of_data) {
  if (config.tokenizer.empty()) return {};
  PENSTOCK_TRY(const OpenedTokenizer named, OpenTokenizer(config.tokenizer));
  if (named.digest == of_data.digest) return {};
  return InvalidParameter(
      "data.tokenizer",
      "{}: the data is tokenized already, with another one, {}: tokenize the text "
      "with this one, or set data.tokenizer={} if the model is trained on those tokens",
      named.name(), of_data.name(), of_data.name());
}

// Opens the tokenizer that a folder of tokens has a copy of.
Result<OpenedTokenizer> OpenTokenizerOf(const TokenFolder& folder) {
  const std::string path = TokenizerOfTokens(folder.path(), folder.index());
  PENSTOCK_TRY(OpenedTokenizer tokenizer, OpenTokenizer(path));
  const TokenIndex& index = folder.index();
  if (tokenizer.digest == index.digest &&
      tokenizer.tokenizer->vocabulary_size() == index.vocabulary) {
    return tokenizer;
  }
  return InvalidArgument(
      "{} is not the tokenizer of the tokens next to it: it was changed or is damaged; tokenize "
      "the text again",
      path);
}

Result<TrainingData> LoadBytes(const TrainConfig& config) {
  PENSTOCK_TRY(Corpus corpus, LoadCorpus(config.data.path, config.data.held_out));
  PENSTOCK_TRY_STATUS(CheckLength(corpus, config.model.sequence));
  TrainingData data;
  data.bytes = std::make_shared<const Corpus>(std::move(corpus));
  data.samples = std::make_shared<Sampler>(data.bytes->train, config.model.sequence, config.seed);
  data.description = fmt::format(
      "text: {} documents of {} files, {} to train on, {} held out", data.bytes->documents,
      data.bytes->files, FormatBytes(static_cast<std::int64_t>(data.bytes->train.size())),
      FormatBytes(static_cast<std::int64_t>(data.bytes->held_out.size())));
  PENSTOCK_TRY(data.tokenizer, OpenTokenizer(std::string(kByteTokenizer)));
  PENSTOCK_TRY_STATUS(CheckVocabulary(config.model, data.tokenizer));
  if (config.data.lengths.empty()) return data;
  const std::vector<std::uint8_t>& train = data.bytes->train;
  PENSTOCK_TRY_STATUS(UseDocuments(config, TokenSet({train.begin(), train.end()}, {}), data));
  return data;
}

// Encodes the documents of a part of a corpus.
Result<std::vector<TokenId>> EncodePart(const std::vector<std::uint8_t>& part,
                                        const Tokenizer& tokenizer) {
  std::string_view rest(reinterpret_cast<const char*>(part.data()), part.size());
  const std::unique_ptr<Encoder> encoder = tokenizer.MakeEncoder();
  std::vector<TokenId> ids;
  while (!rest.empty()) {
    const std::size_t end = rest.find(static_cast<char>(kEndOfDocument));
    PENSTOCK_TRY_STATUS(EncodeDocument(tokenizer, *encoder, rest.substr(0, end), ids));
    rest.remove_prefix(end + 1);
  }
  return ids;
}

// The datasets of a run, before they are checked.
struct LoadedSets {
  std::vector<TokenSet> sets;
  std::vector<std::string> paths;
  std::vector<double> weights;
};

Result<LoadedSets> LoadText(const DataConfig& config, const Tokenizer& tokenizer) {
  PENSTOCK_TRY(const Corpus corpus, LoadCorpus(config.path, config.held_out));
  PENSTOCK_TRY(std::vector<TokenId> train, EncodePart(corpus.train, tokenizer));
  PENSTOCK_TRY(std::vector<TokenId> held_out, EncodePart(corpus.held_out, tokenizer));
  LoadedSets loaded;
  loaded.sets.emplace_back(std::move(train), std::move(held_out));
  loaded.paths = {config.path};
  loaded.weights = {1};
  return loaded;
}

Result<LoadedSets> OpenFolders(const DataConfig& config) {
  std::vector<BlendPart> parts = {{1, config.path}};
  if (!config.blend.empty()) {
    PENSTOCK_TRY(parts, ParseBlend(config.blend));
  }
  LoadedSets loaded;
  for (const BlendPart& part : parts) {
    if (!IsTokenFolder(part.path)) {
      return NotFound("data.blend: {} is not a folder of 'penstock tokenize'", part.path);
    }
    PENSTOCK_TRY(TokenSet set, TokenSet::Open(part.path, config.held_out));
    const TokenIndex& first =
        loaded.sets.empty() ? set.folder()->index() : loaded.sets.front().folder()->index();
    if (set.folder()->index().digest != first.digest) {
      return InvalidParameter("data.blend", ": {} and {} have different tokenizers",
                              loaded.paths.front(), part.path);
    }
    loaded.sets.push_back(std::move(set));
    loaded.paths.push_back(part.path);
    loaded.weights.push_back(part.weight);
  }
  return loaded;
}

Status CheckSets(const LoadedSets& loaded, std::int64_t sequence, std::size_t held_out) {
  const std::size_t needed = Index(sequence) + 1;
  for (std::size_t i = 0; i < loaded.sets.size(); ++i) {
    if (loaded.sets[i].size() >= needed) continue;
    return InvalidArgument(
        "{} is too short: {} tokens to train on, but one sample needs {}; use more text or a "
        "smaller model.sequence",
        loaded.paths[i], loaded.sets[i].size(), needed);
  }
  if (held_out >= needed) return {};
  return InvalidArgument(
      "the text is too short: {} tokens are held out, but one sample needs {}; use more text, a "
      "larger data.held_out or a smaller model.sequence",
      held_out, needed);
}

std::string Describe(const LoadedSets& loaded, std::size_t held_out, const DatasetBlend& blend) {
  std::uint64_t tokens = 0;
  for (const TokenSet& set : loaded.sets) tokens += set.size();
  std::string text =
      fmt::format("text: {} to train on, {} held out", Millions(tokens), Millions(held_out));
  if (loaded.sets.size() == 1) return text;
  for (std::size_t i = 0; i < loaded.sets.size(); ++i) {
    text += fmt::format("{} {:.2f}% of {} ({})", i == 0 ? ":" : ",", 100 * blend.share(i),
                        loaded.paths[i], Millions(loaded.sets[i].size()));
  }
  return text;
}

}  // namespace

TokenSpan TrainingData::held_out() const {
  return is_bytes() ? TokenSpan(bytes->held_out) : TokenSpan(held_out_ids);
}

std::string UnitOf(const OpenedTokenizer& tokenizer) {
  return tokenizer.files.empty() ? "byte" : "token";
}

std::string TrainingData::unit() const { return UnitOf(tokenizer); }

Result<TrainingData> LoadTrainingData(const TrainConfig& config) {
  const DataConfig& options = config.data;
  if (UsesBytes(options)) return LoadBytes(config);
  TrainingData data;
  LoadedSets loaded;
  const bool is_text = options.blend.empty() && !IsTokenFolder(options.path);
  if (is_text) {
    PENSTOCK_TRY(data.tokenizer, OpenTokenizer(options.tokenizer));
    PENSTOCK_TRY(loaded, LoadText(options, *data.tokenizer.tokenizer));
  } else {
    PENSTOCK_TRY(loaded, OpenFolders(options));
    PENSTOCK_TRY(data.tokenizer, OpenTokenizerOf(*loaded.sets.front().folder()));
    PENSTOCK_TRY_STATUS(CheckTokenizerOfData(options, data.tokenizer));
    for (const TokenSet& set : loaded.sets) {
      if (std::string note = set.folder()->note(); !note.empty()) data.notes.push_back(note);
    }
  }
  PENSTOCK_TRY_STATUS(CheckVocabulary(config.model, data.tokenizer));
  for (const TokenSet& set : loaded.sets) {
    data.held_out_ids.insert(data.held_out_ids.end(), set.held_out().begin(), set.held_out().end());
  }
  PENSTOCK_TRY_STATUS(CheckSets(loaded, config.model.sequence, data.held_out_ids.size()));
  data.description = Describe(loaded, data.held_out_ids.size(), DatasetBlend(loaded.weights, 0));
  if (!config.data.lengths.empty()) {
    PENSTOCK_TRY_STATUS(UseDocuments(config, std::move(loaded.sets.front()), data));
    return data;
  }
  data.samples = std::make_shared<TokenSamples>(
      std::move(loaded.sets), loaded.weights, config.model.sequence,
      std::int64_t{config.batch} * config.pipeline.microbatches, config.seed);
  return data;
}

}  // namespace penstock
