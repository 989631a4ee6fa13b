#include "cli/start_engine/launcher.h"

#include <cstdlib>

namespace penstock {

std::optional<int> RankInMpiJob() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const char* const rank = std::getenv(name)) return std::atoi(rank);
  }
  return std::nullopt;
}

}  // namespace penstock
