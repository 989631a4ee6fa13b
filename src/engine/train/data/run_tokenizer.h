// The tokenizer of a run; the run's folder keeps a copy of its files. No torch here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/train_config.h"
#include "tokens/kinds/open_tokenizer.h"

namespace penstock {

// Returns whether CopyTokenizer writes files of this name.
bool IsTokenizerFile(std::string_view name);

// Copies the tokenizer's files to a folder and removes an earlier tokenizer's. Returns the paths.
// Errors: as ReadFile and WriteFileAtomically.
Result<std::vector<std::string>> CopyTokenizer(const OpenedTokenizer& tokenizer,
                                               const std::string& folder);

// Returns the tokenizer of the run that a checkpoint belongs to: the copy in the run's folder, or
// what `data` names if the checkpoint was moved away from it.
Result<OpenedTokenizer> TokenizerOfRun(const std::string& checkpoint, const DataConfig& data);

// Returns the token that ends documents. Errors: kInvalidArgument, naming the key that needs it, if
// the tokenizer has none.
Result<TokenId> EndOfDocument(const OpenedTokenizer& tokenizer, std::string_view key);

// Sets model.document_end to the token that ends documents if data.document_mask is set.
// Errors: as EndOfDocument; kInvalidArgument if the model does not separate documents.
Status SetDocumentEnd(const OpenedTokenizer& tokenizer, TrainConfig& config);
// Sets the end of documents from the tokenizer of the data, which it opens.
Status SetDocumentEnd(TrainConfig& config);

}  // namespace penstock
