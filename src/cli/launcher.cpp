#include "cli/launcher.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace penstock {

bool StartedByMpi() {
  constexpr std::array kVariables = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
  return std::ranges::any_of(kVariables,
                             [](const char* name) { return std::getenv(name) != nullptr; });
}

}  // namespace penstock
