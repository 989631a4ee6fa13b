#include "base/units.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/index.h"

namespace penstock {

std::string FormatBytes(std::int64_t bytes) {
  static constexpr std::array kNames = {"KiB", "MiB", "GiB", "TiB"};
  if (std::abs(bytes) < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, std::abs(value) < 10 ? 2 : 1, kNames[unit]);
}

std::string FormatSeconds(double seconds) {
  if (seconds < 1e-6) return fmt::format("{:.0f} ns", seconds * 1e9);
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} m {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} m", whole / 3600, whole % 3600 / 60);
}

Result<std::int64_t> ParseBytes(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr std::array kUnits = {
      Unit{"B", 1},    Unit{"KiB", 1024.0}, Unit{"MiB", 1048576.0}, Unit{"GiB", 1073741824.0},
      Unit{"KB", 1e3}, Unit{"MB", 1e6},     Unit{"GB", 1e9},        Unit{"TiB", 1099511627776.0},
      Unit{"TB", 1e12}};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit(end, Index(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (error == std::errc() && value >= 0 && value < 1e18) {
    for (const Unit& known : kUnits) {
      if (unit == known.name && value * known.bytes < 9e18) {
        return static_cast<std::int64_t>(std::llround(value * known.bytes));
      }
    }
  }
  return InvalidArgument("'{}' is not a size; write a number and B, KiB, MiB, GiB, KB, MB or GB",
                         text);
}

}  // namespace penstock
