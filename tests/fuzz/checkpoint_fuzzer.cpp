// libFuzzer target that reads any bytes as a manifest, as the header of a safetensors file and as a
// file. The readers must not crash or allocate much more than the input. What they accept must lie
// within the sizes that they were given, and must be written back equally.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/index.h"
#include "checkpoint/crc32.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors_header.h"
#include "tests/fuzz/require.h"

namespace penstock {
namespace {

void RequireOneLine(const std::string& message) {
  Require(!message.empty() && message.find('\n') == std::string::npos, "not one line", message);
}

void CheckHeader(std::string_view json, std::uint64_t data_bytes) {
  const auto header = ParseSafetensorsHeader(json, data_bytes);
  if (!header) return RequireOneLine(header.error().line());
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : header->tensors) {
    Require(tensor.begin <= tensor.end && tensor.end <= data_bytes, "outside of the file", name);
    const auto size = BytesOfDtype(tensor.dtype);
    Require(size.has_value(), "an unknown dtype", tensor.dtype);
    const auto elements = ElementsOf(tensor.shape, *size, data_bytes);
    Require(elements && *elements * *size == tensor.end - tensor.begin, "not its shape", name);
    bytes += tensor.end - tensor.begin;
  }
  Require(bytes <= data_bytes, "more bytes than the file", std::string(json));
}

void CheckFile(std::string_view file) {
  const auto length = HeaderLength(file, file.size());
  if (!length) return RequireOneLine(length.error().line());
  Require(*length <= file.size() - kHeaderLengthBytes, "outside of the file", "");
  const std::string_view json = file.substr(kHeaderLengthBytes, *length);
  const std::size_t digits = FindOwnChecksum(json);
  if (digits != std::string_view::npos) OwnCrc32(json, digits);
  CheckHeader(json, file.size() - kHeaderLengthBytes - *length);
}

void CheckTensor(const Manifest& manifest, const std::string& name, const ManifestTensor& tensor) {
  const auto size = BytesOfDtype(tensor.dtype);
  Require(size.has_value(), "an unknown dtype", name);
  std::uint64_t elements = 0, next = 0;
  std::optional<Box> box;
  for (const ManifestPiece& piece : tensor.pieces) {
    if (piece.box != box) next = 0;
    box = piece.box;
    Require(piece.begin == next && piece.end > next, "pieces overlap or leave a gap", name);
    Require(piece.end <= Index(tensor.LayoutOf(piece).elements()), "outside of its box", name);
    next = piece.end;
    elements += piece.end - piece.begin;
    Require(manifest.files.contains(piece.file), "a file that the manifest lacks", piece.file);
    Require(piece.file.find('/') == std::string::npos, "a path", piece.file);
    const std::uint64_t bytes = (piece.end - piece.begin) * *size;
    Require(bytes <= manifest.files.at(piece.file).bytes, "a piece exceeds its file", name);
    Require(piece.crc32.size() == BlocksOf(bytes, manifest.block_bytes), "blocks", name);
  }
  Require(elements == tensor.elements(), "not all elements", name);
}

void CheckManifest(std::string_view text) {
  if (const auto verified = ParseManifest(text); !verified) {
    RequireOneLine(verified.error().line());
  }
  const auto manifest = ParseManifestContent(text);
  if (!manifest) return RequireOneLine(manifest.error().line());
  for (const auto& [name, tensor] : manifest->tensors) CheckTensor(*manifest, name, tensor);
  const std::string written = FormatManifest(*manifest);
  const auto again = ParseManifest(written);
  Require(again.has_value() && *again == *manifest, "a manifest reads back differently", written);
}

void CheckInput(std::string_view input) {
  CheckManifest(input);
  CheckHeader(input, 64);
  CheckFile(input);
}

}  // namespace
}  // namespace penstock

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::CheckInput({reinterpret_cast<const char*>(data), size});
  return 0;
}
