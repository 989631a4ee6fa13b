// libFuzzer target that reads any bytes as the JSON files of users that have no fuzzer of their
// own: a model's config.json, the index of a token folder and lines of metrics. The readers must
// not crash or allocate much more than the input, and their errors must be one short line. An index
// that is accepted must be written and read back equally.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/text/strict_json.h"
#include "model_spec/huggingface_config.h"
#include "monitor/metrics.h"
#include "tests/fuzz/require.h"
#include "tokens/files/token_folder.h"

namespace penstock {
namespace {

constexpr std::size_t kLongestLine = 1000;  // bytes

template <class T>
void RequireShortLine(const Result<T>& result) {
  if (result) return;
  const Error& error = result.error();
  Require(error.code == ErrorCode::kInvalidArgument, "not an error of the input", error.line());
  Require(!error.line().empty() && error.line().find('\n') == std::string::npos, "not one line",
          error.line());
  Require(error.line().size() <= kLongestLine, "a long line", error.line());
}

void CheckIndex(std::string_view text) {
  const auto index = ParseTokenIndex(text);
  RequireShortLine(index);
  if (!index) return;
  const std::string written = ToJson(*index);
  const auto again = ParseTokenIndex(written);
  Require(again && ToJson(*again) == written, "an index reads back differently", written);
}

void CheckJson(std::string_view text) {
  RequireShortLine(ParseStrictJson(text));
  RequireShortLine(ParseHuggingFaceShape(text));
  CheckIndex(text);
  ParseMetric(text);
  ParseHeldOut(text);
}

}  // namespace
}  // namespace penstock

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::CheckJson({reinterpret_cast<const char*>(data), size});
  return 0;
}
