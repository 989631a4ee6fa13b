#include "base/system/free_space.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/units.h"

namespace penstock {

Status CheckFreeSpace(const std::string& folder, std::int64_t bytes, const std::string& what) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  // Some network file systems report no size at all.
  if (error || space.capacity == 0 || bytes <= 0) return {};
  const auto free = static_cast<std::int64_t>(
      std::min<std::uintmax_t>(space.available, std::numeric_limits<std::int64_t>::max()));
  if (bytes <= free) return {};
  return MakeError(ErrorCode::kUnavailable,
                   "{}: its disk has {} free, and {} need {}; free some, or use another folder",
                   folder, FormatBytes(free), what, FormatBytes(bytes));
}

}  // namespace penstock
