// Encodes and decodes texts with the tokenizer TOKENIZER, for tokenizers_agree.py.
//
// Usage: encode_texts TOKENIZER [--time]. Reads texts from stdin, each after its length. Writes two
// lists of ids per text, without and with the special tokens around it, and the decoded text of the
// first, each after its length. Lengths are 64-bit numbers, ids 32-bit ones. With --time, writes
// instead the seconds that encoding the text takes and its number of tokens, a line per text.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tokens/kinds/open_tokenizer.h"

namespace penstock {
namespace {

Status Time(std::string_view text, Encoder& encoder) {
  std::vector<TokenId> ids;
  const auto begin = std::chrono::steady_clock::now();
  PENSTOCK_TRY_STATUS(encoder.Encode(text, SpecialTokens::kOmit, ids));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%.9f %zu\n", seconds.count(), ids.size());
  std::fflush(stdout);
  return {};
}

template <class T>
void Write(const std::vector<T>& values) {
  const std::uint64_t size = values.size();
  std::fwrite(&size, sizeof size, 1, stdout);
  std::fwrite(values.data(), sizeof(T), values.size(), stdout);
}

int Fail(const Error& error) {
  std::fprintf(stderr, "%s\n", error.line().c_str());
  return 1;
}

int Run(const char* path, bool times) {
  const auto opened = OpenTokenizer(path);
  if (!opened) return Fail(opened.error());
  const auto encoder = opened->tokenizer->MakeEncoder();
  std::uint64_t length = 0;
  while (std::fread(&length, sizeof length, 1, stdin) == 1) {
    std::string text(length, '\0');
    if (std::fread(text.data(), 1, length, stdin) != length) return 1;
    if (times) {
      const Status timed = Time(text, *encoder);
      if (!timed) return Fail(timed.error());
      continue;
    }
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
  if (count < 2) return EXIT_FAILURE;
  return penstock::Run(arguments[1], count == 3 && std::string_view(arguments[2]) == "--time");
}
