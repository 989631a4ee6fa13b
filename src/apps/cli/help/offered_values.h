// The values of an option that the shell offers when the user presses Tab.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct OfferedValue {
  std::string text;  // ends with '=' if an argument follows
  std::string meaning = {};
};

enum class OfferedPaths { kNone, kFolders, kFiles };

struct OfferedValues {
  std::vector<OfferedValue> values;
  OfferedPaths paths = OfferedPaths::kNone;  // what the value may be instead
  bool in_list = false;                      // whether commas separate several
};

// Attaches values to an option. They are not checked when it is parsed. `offered` is called when
// the shell asks, if at all. Returns the option.
CLI::Option* Offer(CLI::Option* option, std::function<OfferedValues()> offered);

// Attaches a few words.
CLI::Option* Offer(CLI::Option* option, const std::vector<std::string_view>& words);

// The schedules of the catalog; commas separate several. Or a path, as `paths` says.
OfferedValues OfferedSchedules(OfferedPaths paths);

// The runs in runs/, or a path, as `paths` says.
OfferedValues OfferedRuns(OfferedPaths paths);

// Returns the values that were attached. Without any, an option takes a path if its placeholder in
// --help says so: FILE, FOLDER, DIR, RUN or PATH, or a file's name.
OfferedValues ValuesOf(CLI::Option& option);

}  // namespace penstock
