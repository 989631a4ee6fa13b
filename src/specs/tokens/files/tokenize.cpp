#include "tokens/files/tokenize.h"

#include <algorithm>
#include <future>
#include <memory>

#include "tokens/files/token_writer.h"

namespace penstock {
namespace {

// Text per thread and round: enough that threads rarely wait for each other.
constexpr std::size_t kBytesPerThread = std::size_t{2} << 20U;

// Documents and, after a round, their tokens.
struct Batch {
  std::vector<std::string> documents;
  std::vector<TokenId> ids;
  std::vector<std::size_t> ends;  // in `ids`, by document
};

Status EncodeBatch(const Tokenizer& tokenizer, Encoder& encoder, Batch& batch) {
  batch.ids.clear();
  batch.ends.clear();
  for (const std::string& document : batch.documents) {
    PENSTOCK_TRY_STATUS(EncodeDocument(tokenizer, encoder, document, batch.ids));
    batch.ends.push_back(batch.ids.size());
  }
  return {};
}

// Returns whether there may be more documents.
Result<bool> ReadBatch(DocumentReader& reader, Batch& batch) {
  batch.documents.clear();
  std::string document;
  for (std::size_t bytes = 0; bytes < kBytesPerThread; bytes += batch.documents.back().size()) {
    PENSTOCK_TRY(const bool found, reader.Next(document));
    if (!found) return false;
    batch.documents.push_back(std::move(document));
  }
  return true;
}

Status WriteBatch(const Batch& batch, TokenWriter& writer) {
  std::size_t begin = 0;
  for (const std::size_t end : batch.ends) {
    PENSTOCK_TRY_STATUS(writer.Add(std::span(batch.ids).subspan(begin, end - begin)));
    begin = end;
  }
  return {};
}

}  // namespace

Status EncodeDocument(const Tokenizer& tokenizer, Encoder& encoder, std::string_view document,
                      std::vector<TokenId>& ids) {
  const std::size_t begin = ids.size();
  PENSTOCK_TRY_STATUS(encoder.Encode(document, SpecialTokens::kAdd, ids));
  const auto end = tokenizer.end_of_text();
  if (end && (ids.size() == begin || ids.back() != *end)) ids.push_back(*end);
  return {};
}

Result<TokenIndex> TokenizeFiles(const std::vector<std::string>& files,
                                 const OpenedTokenizer& tokenizer, const std::string& to,
                                 const TokenizeOptions& options) {
  DocumentReader reader(files, options.documents);
  PENSTOCK_TRY(TokenWriter writer, TokenWriter::Create(to, tokenizer, options.shard_tokens));
  std::vector<Batch> batches(static_cast<std::size_t>(std::max(1, options.threads)));
  std::vector<std::unique_ptr<Encoder>> encoders;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    encoders.push_back(tokenizer.tokenizer->MakeEncoder());
  }
  std::uint64_t tokens = 0;
  for (bool more = true; more;) {
    if (options.stop != nullptr && options.stop->load()) {
      return MakeError(ErrorCode::kUnavailable, "stopped: {} is not written", to);
    }
    std::vector<std::future<Status>> running;
    for (std::size_t i = 0; i < batches.size() && more; ++i) {
      PENSTOCK_TRY(more, ReadBatch(reader, batches[i]));
      running.push_back(std::async(std::launch::async,
                                   [&tokenizer, &batch = batches[i], &encoder = *encoders[i]] {
                                     return EncodeBatch(*tokenizer.tokenizer, encoder, batch);
                                   }));
    }
    for (std::size_t i = 0; i < running.size(); ++i) {
      PENSTOCK_TRY_STATUS(running[i].get());
      PENSTOCK_TRY_STATUS(WriteBatch(batches[i], writer));
      tokens += batches[i].ids.size();
    }
    if (options.progress) options.progress(reader.bytes(), tokens);
  }
  return writer.Finish();
}

}  // namespace penstock
