// libFuzzer target that reads any bytes as a tokenizer.json and, after a zero byte, as a text. The
// reader must not crash or allocate much more than the input, and its errors must be one line. With
// a tokenizer that it accepts, the text must be encoded and decoded within the vocabulary.
#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/fuzz/require.h"
#include "tokens/huggingface/tokenizer_json.h"

namespace penstock {
namespace {

void RequirePlainError(const Error& error) {
  Require(error.code == ErrorCode::kInvalidArgument, "not an error of the input", error.line());
  Require(!error.line().empty() && error.line().find('\n') == std::string::npos, "not one line",
          error.line());
}

void CheckTokenizer(std::string_view input) {
  const std::string_view json = input.substr(0, input.find('\0'));
  const auto tokenizer = ReadTokenizerJson(json);
  if (!tokenizer) return RequirePlainError(tokenizer.error());
  const std::string_view text = input.substr(std::min(json.size() + 1, input.size()));
  std::vector<TokenId> ids;
  const Status encoded = (*tokenizer)->MakeEncoder()->Encode(text, SpecialTokens::kAdd, ids);
  if (!encoded) RequirePlainError(encoded.error());
  for (const TokenId id : ids) {
    Require(id < (*tokenizer)->vocabulary_size(), "outside of the vocabulary", "");
  }
  (*tokenizer)->Decode(ids);
}

}  // namespace
}  // namespace penstock

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::CheckTokenizer({reinterpret_cast<const char*>(data), size});
  return 0;
}
