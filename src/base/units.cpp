#include "base/units.h"

#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <span>

#include "base/from_chars.h"
#include "base/index.h"

namespace penstock {
namespace {

constexpr double kLeastSeconds = 5e-13;  // less is an error of rounding
constexpr double kMostSeconds = 1e15;    // beyond, hours say nothing

struct Unit {
  std::string_view name;
  double factor;
};

// Returns a number of at least 0 times the factor of the unit that follows it, if it is known.
std::optional<double> ParseWithUnit(std::string_view text, std::span<const Unit> units) {
  double value = 0;
  const auto [end, error] = FromChars(text.data(), text.data() + text.size(), value);
  std::string_view name(end, Index(text.data() + text.size() - end));
  while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
  if (error != std::errc() || !(value >= 0)) return std::nullopt;
  for (const Unit& unit : units) {
    if (name == unit.name) return value * unit.factor;
  }
  return std::nullopt;
}

// "8G" may mean 8GiB or 8GB.
std::string MeantSize(std::string_view text) {
  if (text.size() < 2) return "";
  const char letter = static_cast<char>(std::toupper(static_cast<unsigned char>(text.back())));
  const std::string_view number = text.substr(0, text.size() - 1);
  const std::array kUnit = {Unit{"", 1}};
  if (std::string_view("KMGT").find(letter) == std::string_view::npos) return "";
  return ParseWithUnit(number, kUnit) ? fmt::format(" ({0}{1}iB)", number, letter) : "";
}

}  // namespace

std::string FormatBytes(std::int64_t bytes) {
  static constexpr std::array kNames = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes > -1024 && bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // What rounds to 1024.0 is 1.00 of the next unit.
  while (std::abs(value) >= 1023.95 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, std::abs(value) < 9.995 ? 2 : 1, kNames[unit]);
}

std::string FormatSeconds(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (std::abs(seconds) < kLeastSeconds) return "0 ns";
  if (seconds < 0) return fmt::format("-{}", FormatSeconds(-seconds));
  // The limits are where a smaller unit would round to the next one: 999.96 us are 1.0 ms.
  if (seconds < 9.995e-10) return fmt::format("{:.2g} ns", seconds * 1e9);
  if (seconds < 9.995e-7) return fmt::format("{:.0f} ns", seconds * 1e9);
  if (seconds < 9.9995e-4) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 0.99995) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  if (seconds > kMostSeconds) return fmt::format("{:.3g} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} m {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} m", whole / 3600, whole % 3600 / 60);
}

Result<std::int64_t> ParseBytes(std::string_view text) {
  static constexpr std::array kUnits = {
      Unit{"B", 1},    Unit{"KiB", 1024.0}, Unit{"MiB", 1048576.0}, Unit{"GiB", 1073741824.0},
      Unit{"KB", 1e3}, Unit{"MB", 1e6},     Unit{"GB", 1e9},        Unit{"TiB", 1099511627776.0},
      Unit{"TB", 1e12}};
  const std::optional<double> bytes = ParseWithUnit(text, kUnits);
  if (bytes && *bytes < 9e18) return static_cast<std::int64_t>(std::llround(*bytes));
  return InvalidArgument("'{}' is not a size; write a number and B, KiB, MiB, GiB, KB, MB or GB{}",
                         text, MeantSize(text));
}

Result<double> ParseTokens(std::string_view text) {
  static constexpr std::array kUnits = {Unit{"", 1}, Unit{"K", 1e3}, Unit{"M", 1e6}, Unit{"B", 1e9},
                                        Unit{"T", 1e12}};
  const std::optional<double> count = ParseWithUnit(text, kUnits);
  if (count && *count > 0 && *count < 1e18) return *count;
  return InvalidArgument("'{}' is not a number; write one above 0, with K, M, B or T after it",
                         text);
}

Result<double> ParseSeconds(std::string_view text) {
  static constexpr std::array kUnits = {Unit{"s", 1},     Unit{"ms", 1e-3},  Unit{"us", 1e-6},
                                        Unit{"ns", 1e-9}, Unit{"min", 60.0}, Unit{"h", 3600.0}};
  const std::optional<double> seconds = ParseWithUnit(text, kUnits);
  if (seconds && *seconds < 1e12) return *seconds;
  return InvalidArgument("'{}' is not a time; write a number and s, ms, us, ns, min or h", text);
}

Result<double> ParseBandwidth(std::string_view text) {
  static constexpr std::array kUnits = {
      Unit{"", 1},           Unit{"B/s", 1},        Unit{"KB/s", 1e3},
      Unit{"MB/s", 1e6},     Unit{"GB/s", 1e9},     Unit{"Kbit/s", 125.0},
      Unit{"Mbit/s", 125e3}, Unit{"Gbit/s", 125e6}, Unit{"TB/s", 1e12}};
  const std::optional<double> bandwidth = ParseWithUnit(text, kUnits);
  if (bandwidth && *bandwidth > 0 && *bandwidth < 1e18) return *bandwidth;
  return InvalidArgument("'{}' is not a bandwidth; write a number and Gbit/s, Mbit/s, GB/s or MB/s",
                         text);
}

}  // namespace penstock
