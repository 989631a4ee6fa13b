// The scripts by which shells complete the program's arguments. They ask the program itself
// ('penstock completion words'), so that they fit every version of it.
#pragma once

#include <string_view>
#include <vector>

namespace penstock {

struct CompletionScript {
  std::string_view shell, text;
};

const std::vector<CompletionScript>& CompletionScripts();

}  // namespace penstock
