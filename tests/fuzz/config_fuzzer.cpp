// libFuzzer target that reads any bytes as a training configuration: YAML, then overrides, each
// preceded by a zero byte. The reader must not crash or allocate much more than the input, and its
// errors must be one line. A configuration that it accepts must be written and read back equally.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/schedule_params.h"
#include "config/train_config.h"
#include "tests/fuzz/require.h"

namespace penstock {
namespace {

void RequireOneLine(const Error& error) {
  Require(error.code == ErrorCode::kInvalidArgument, "not an error of the input", error.line());
  Require(!error.line().empty() && error.line().find('\n') == std::string::npos, "not one line",
          error.line());
}

void CheckRoundTrip(const TrainConfig& config) {
  const std::string written = ToYaml(config);
  const auto again = ParseTrainConfig(written, "written");
  Require(again.has_value(), "cannot read what it wrote",
          again ? "" : again.error().line() + '\n' + written);
  const std::vector<KeyDifference> different = DifferentKeys(config, *again);
  Require(different.empty(), "reads back differently",
          different.empty() ? "" : different.front().key + '\n' + written);
}

void CheckParts(const TrainConfig& config) {
  const auto params = ParamsOf(config.pipeline);
  if (!params) RequireOneLine(params.error());
  const Status suits_csv = RefuseForCsv(config.pipeline);
  if (!suits_csv) RequireOneLine(suits_csv.error());
  UpdateRuleOf(config.optimizer);
}

void CheckConfig(std::string_view input) {
  const std::string_view yaml = input.substr(0, input.find('\0'));
  std::vector<std::string> overrides;
  for (std::size_t begin = yaml.size() + 1; begin <= input.size();) {
    const std::string_view text = input.substr(begin, input.find('\0', begin) - begin);
    overrides.emplace_back(text);
    begin += text.size() + 1;
  }
  const auto config = ParseTrainConfig(yaml, "a.yaml", overrides);
  if (!config) return RequireOneLine(config.error());
  CheckParts(*config);
  CheckRoundTrip(*config);
}

}  // namespace
}  // namespace penstock

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::CheckConfig({reinterpret_cast<const char*>(data), size});
  return 0;
}
