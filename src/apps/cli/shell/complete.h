// What completes the word before the cursor, from the options that commands define.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cli/command/command.h"
#include "cli/help/offered_values.h"

namespace penstock {

struct Completions {
  std::vector<OfferedValue> words;  // whole words that begin as the last one does
  OfferedPaths paths = OfferedPaths::kNone;
  std::size_t path_begin = 0;  // where in the last word the path begins
};

// `words` follow the program's name; the last one, which may be empty, is to be completed.
Completions Complete(const std::vector<std::unique_ptr<Command>>& commands,
                     const std::vector<std::string>& words);

}  // namespace penstock
