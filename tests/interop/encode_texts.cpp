// Encodes and decodes texts with the tokenizer TOKENIZER, for tokenizers_agree.py.
//
// Usage: encode_texts TOKENIZER. Reads texts from stdin, each after its length. Writes two lists of
// ids per text, without and with the special tokens around it, and the decoded text of the first,
// each after its length. Lengths are 64-bit numbers, ids 32-bit ones.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tokens/kinds/open_tokenizer.h"

namespace penstock {
namespace {

template <class T>
void Write(const std::vector<T>& values) {
  const std::uint64_t size = values.size();
  std::fwrite(&size, sizeof size, 1, stdout);
  std::fwrite(values.data(), sizeof(T), values.size(), stdout);
}

int Fail(const Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

int Run(const char* path) {
  const auto opened = OpenTokenizer(path);
  if (!opened) return Fail(opened.error());
  const auto encoder = opened->tokenizer->MakeEncoder();
  std::uint64_t length = 0;
  while (std::fread(&length, sizeof length, 1, stdin) == 1) {
    std::string text(length, '\0');
    if (std::fread(text.data(), 1, length, stdin) != length) return 1;
    std::vector<TokenId> plain;
    std::vector<TokenId> with_special;
    Status done = encoder->Encode(text, SpecialTokens::kOmit, plain);
    if (done) done = encoder->Encode(text, SpecialTokens::kAdd, with_special);
    if (!done) return Fail(done.error());
    const std::string decoded = opened->tokenizer->Decode(plain);
    Write(plain);
    Write(with_special);
    Write(std::vector<char>(decoded.begin(), decoded.end()));
  }
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int count, char** arguments) {
  return count == 2 ? penstock::Run(arguments[1]) : EXIT_FAILURE;
}
