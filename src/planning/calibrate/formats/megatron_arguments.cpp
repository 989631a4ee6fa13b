#include "calibrate/formats/megatron_arguments.h"

#include <algorithm>

#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "calibrate/formats/megatron_test_table.h"

namespace penstock {
namespace {

struct KnownTest {
  std::string_view arguments;
  std::string_view old_platforms;  // with commas between them
};

std::string_view TakeUntil(std::string_view& rest, char end) {
  const std::size_t length = std::min(rest.find(end), rest.size());
  const std::string_view taken = rest.substr(0, length);
  rest.remove_prefix(std::min(length + 1, rest.size()));
  return taken;
}

std::map<std::string_view, KnownTest> ReadTests() {
  std::map<std::string_view, KnownTest> tests;
  std::string_view rest = kMegatronTests, arguments;
  while (!rest.empty()) {
    std::string_view line = TakeUntil(rest, '\n');
    if (line.starts_with('#')) continue;
    if (!line.starts_with("  ")) {
      arguments = line;
      continue;
    }
    line.remove_prefix(2);
    const std::string_view name = TakeUntil(line, ' ');
    tests[name] = {arguments, line};
  }
  return tests;
}

const KnownTest* FindTest(std::string_view name) {
  static const auto& tests = *new std::map<std::string_view, KnownTest>(ReadTests());
  const auto found = tests.find(name);
  return found == tests.end() ? nullptr : &found->second;
}

bool HasWord(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    if (TakeUntil(list, ',') == word) return true;
  }
  return false;
}

}  // namespace

MegatronArguments::MegatronArguments(const CsvRow& row) : row_(row) {
  const KnownTest* const test = FindTest(row.Text("test"));
  const std::string_view platform = row.Text("platform");
  is_old_ = platform.starts_with("lts_dgxa100");
  if (test == nullptr) return;
  is_old_ = is_old_ || HasWord(test->old_platforms, platform);
  std::string_view rest = test->arguments;
  while (!rest.empty()) {
    std::string_view word = TakeUntil(rest, ' ');
    const std::string_view name = TakeUntil(word, '=');
    of_test_[name] = word;
  }
}

std::string_view MegatronArguments::Text(std::string_view name) const {
  if (row_.Has(name)) return row_.Text(name);
  const auto found = of_test_.find(name);
  return found == of_test_.end() ? std::string_view() : found->second;
}

Result<int> MegatronArguments::Count(std::string_view name) const {
  const auto number = ParseInt(Text(name));
  if (number && *number >= 1) return *number;
  return InvalidParameter(name, "{}: a whole number of at least 1 is needed", Quote(Text(name)));
}

Result<int> MegatronArguments::CountOr(std::string_view name, int otherwise) const {
  return Has(name) ? Count(name) : otherwise;
}

}  // namespace penstock
