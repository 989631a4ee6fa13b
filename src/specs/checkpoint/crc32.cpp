#include "checkpoint/crc32.h"

#include <fmt/format.h>
#include <zlib.h>

#include <charconv>

namespace penstock {
namespace {

// Quotes in strings are escaped, so this text cannot appear elsewhere in JSON without white space.
constexpr std::string_view kChecksumText = R"("checksum":"crc32:)";
constexpr std::size_t kDigits = 8;

}  // namespace

std::uint32_t Crc32(std::string_view bytes, std::uint32_t before) {
  if (bytes.empty()) return before;  // a null pointer would restart the checksum
  return static_cast<std::uint32_t>(
      crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::uint32_t CombineCrc32(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
  return static_cast<std::uint32_t>(
      crc32_combine(first, second, static_cast<z_off_t>(second_bytes)));
}

std::string FormatCrc32(std::uint32_t checksum) { return fmt::format("{:08x}", checksum); }

std::optional<std::uint32_t> ParseCrc32(std::string_view digits) {
  std::uint32_t checksum = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, checksum, 16);
  if (error != std::errc() || stop != end || FormatCrc32(checksum) != digits) return std::nullopt;
  return checksum;
}

std::size_t FindOwnChecksum(std::string_view json) {
  const std::size_t found = json.find(kChecksumText);
  if (found == std::string_view::npos) return found;
  const std::size_t digits = found + kChecksumText.size();
  return json.size() < digits + kDigits ? std::string_view::npos : digits;
}

std::uint32_t OwnCrc32(std::string_view json, std::size_t digits) {
  const std::uint32_t before = Crc32(std::string(kDigits, '0'), Crc32(json.substr(0, digits)));
  return Crc32(json.substr(digits + kDigits), before);
}

void SetOwnChecksum(std::string& json, std::uint32_t checksum) {
  json.replace(FindOwnChecksum(json), kDigits, FormatCrc32(checksum));
}

}  // namespace penstock
