#include "cli/help/offered_values.h"

#include <algorithm>

#include "cli/help/help.h"
#include "monitor/run_names.h"
#include "schedule/catalog.h"

namespace penstock {
namespace {

// CLI11 stores nothing for an option but its checks. So the values are the answer of a check that
// is not active, one per line after a line with the other members.
constexpr const char* kOffered = "offered";

std::string Write(const OfferedValues& offered) {
  std::string text =
      fmt::format("{}{}", static_cast<int>(offered.paths), offered.in_list ? "," : "");
  for (const OfferedValue& value : offered.values) {
    text += fmt::format("\n{}\t{}", value.text, value.meaning);
  }
  return text;
}

OfferedValues Read(std::string_view text) {
  OfferedValues offered;
  offered.paths = static_cast<OfferedPaths>(text.front() - '0');
  offered.in_list = text.substr(1).starts_with(',');
  for (std::size_t end = text.find('\n'); end != std::string_view::npos;) {
    const std::size_t begin = end + 1;
    end = text.find('\n', begin);
    const std::string_view line = text.substr(begin, end == text.npos ? text.npos : end - begin);
    const std::size_t tab = line.find('\t');
    offered.values.push_back({std::string(line.substr(0, tab)), std::string(line.substr(tab + 1))});
  }
  return offered;
}

OfferedPaths PathsOf(std::string_view placeholder) {
  for (const std::string_view folder : {"FOLDER", "DIR", "RUN"}) {
    if (placeholder.starts_with(folder)) return OfferedPaths::kFolders;
  }
  for (const std::string_view file : {"FILE", "PATH", "CHECKPOINT", "CONFIG"}) {
    if (placeholder.starts_with(file)) return OfferedPaths::kFiles;
  }
  return OfferedPaths::kNone;
}

}  // namespace

CLI::Option* Offer(CLI::Option* option, std::function<OfferedValues()> offered) {
  CLI::Validator check([offered = std::move(offered)](std::string&) { return Write(offered()); },
                       "", kOffered);
  return option->check(check.active(false));
}

OfferedValues OfferedRuns(OfferedPaths paths) {
  OfferedValues offered;
  for (const std::string& name : RunNames()) offered.values.push_back({name});
  offered.paths = paths;
  return offered;
}

CLI::Option* Offer(CLI::Option* option, const std::vector<std::string_view>& words) {
  OfferedValues offered;
  for (const std::string_view word : words) offered.values.push_back({std::string(word)});
  return Offer(option, [offered] { return offered; });
}

OfferedValues OfferedSchedules(OfferedPaths paths) {
  OfferedValues offered{{}, paths, true};
  for (const Algorithm& algorithm : Catalog()) {
    offered.values.push_back({std::string(algorithm.name), std::string(algorithm.summary)});
  }
  return offered;
}

OfferedValues ValuesOf(CLI::Option& option) {
  OfferedValues offered;
  try {
    CLI::Validator check = *option.get_validator(kOffered);
    offered = Read(check.active()(std::string()));
  } catch (const CLI::OptionNotFound&) {
    offered.paths = PathsOf(option.get_positional() ? option.get_name(true) : ValueName(option));
  }
  offered.in_list = offered.in_list || option.get_delimiter() == ',';
  return offered;
}

}  // namespace penstock
