// CRC-32 checksums, and JSON texts that contain their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// Returns the checksum of `bytes` after other bytes, whose checksum is `before`.
std::uint32_t Crc32(std::string_view bytes, std::uint32_t before = 0);
// Returns the checksum of two consecutive ranges of bytes from their checksums.
std::uint32_t CombineCrc32(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

// Formats a checksum as 8 hexadecimal digits. ParseCrc32 reads exactly these.
std::string FormatCrc32(std::uint32_t checksum);
std::optional<std::uint32_t> ParseCrc32(std::string_view digits);

// The entry of a JSON object that contains the checksum of the text itself, computed with zeros in
// place of the digits. The writer first stores kNoChecksum.
inline constexpr const char* kChecksumKey = "checksum";
inline constexpr const char* kNoChecksum = "crc32:00000000";

// Returns where the digits of the text's own checksum begin, or npos if there are none.
std::size_t FindOwnChecksum(std::string_view json);
// Returns the checksum of a text, with zeros in place of the digits at `digits`.
std::uint32_t OwnCrc32(std::string_view json, std::size_t digits);
// Stores the checksum. Requires: the text contains kNoChecksum.
void SetOwnChecksum(std::string& json, std::uint32_t checksum);

}  // namespace penstock
