#include "train/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>
#include <zlib.h>

#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/index.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kAlignment = 8;  // of the tensors' bytes; spaces pad the header
constexpr const char* kChecksum = "checksum";
constexpr std::string_view kNoChecksum = "crc32:00000000";
// The checksum's text in the header. Quotes in strings are escaped, so it cannot appear elsewhere.
constexpr std::string_view kChecksumText = R"("checksum":"crc32:)";
constexpr std::size_t kDigits = 8;
static_assert(std::endian::native == std::endian::little, "the format is little-endian");

struct Dtype {
  const char* name;
  c10::ScalarType type;
};
constexpr std::array kDtypes = {
    Dtype{"F64", at::kDouble},    Dtype{"F32", at::kFloat}, Dtype{"F16", at::kHalf},
    Dtype{"BF16", at::kBFloat16}, Dtype{"I64", at::kLong},  Dtype{"I32", at::kInt},
    Dtype{"I16", at::kShort},     Dtype{"I8", at::kChar},   Dtype{"U8", at::kByte},
    Dtype{"BOOL", at::kBool},
};

Result<const char*> NameOf(c10::ScalarType type) {
  for (const Dtype& known : kDtypes) {
    if (known.type == type) return known.name;
  }
  return InvalidArgument("safetensors files cannot contain {}", c10::toString(type));
}

Result<c10::ScalarType> TypeNamed(const std::string& name) {
  for (const Dtype& known : kDtypes) {
    if (name == known.name) return known.type;
  }
  return InvalidArgument("unknown dtype {}", name);
}

// Throws json::exception if the entry is malformed.
Result<at::Tensor> ReadTensor(const json& entry, std::string_view data) {
  PENSTOCK_TRY(const c10::ScalarType type, TypeNamed(entry.at("dtype").get<std::string>()));
  const auto shape = entry.at("shape").get<std::vector<std::int64_t>>();
  const auto begin = entry.at("data_offsets").at(0).get<std::size_t>();
  const auto end = entry.at("data_offsets").at(1).get<std::size_t>();
  if (begin > end || end > data.size()) return InvalidArgument("its bytes are not in the file");
  std::size_t bytes = c10::elementSize(type);
  for (const std::int64_t size : shape) {
    // Rejects sizes beyond the file before `bytes` can overflow.
    if (size < 0 || (size > 0 && bytes > data.size() / Index(size))) {
      return InvalidArgument("its shape does not fit the file");
    }
    bytes *= Index(size);
  }
  if (bytes != end - begin) {
    return InvalidArgument("it has {} bytes, but its shape needs {}", end - begin, bytes);
  }
  at::Tensor tensor = at::empty(shape, type);
  if (bytes > 0) std::memcpy(tensor.mutable_data_ptr(), data.data() + begin, bytes);
  return tensor;
}

std::uint32_t Crc32(std::uint32_t before, std::string_view bytes) {
  if (bytes.empty()) return before;  // a null pointer would restart the checksum
  return static_cast<std::uint32_t>(
      crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::string Digits(std::uint32_t checksum) { return fmt::format("{:08x}", checksum); }

// Returns whether the header has a checksum. Errors: if it is wrong.
Result<bool> VerifyChecksum(std::string_view header, std::string_view data) {
  const std::size_t found = header.find(kChecksumText);
  if (found == std::string_view::npos) return false;
  const std::size_t digits = found + kChecksumText.size();
  if (header.size() < digits + kDigits) return InvalidArgument("its checksum is truncated");
  std::uint32_t checksum = Crc32(0, header.substr(0, digits));
  checksum = Crc32(checksum, std::string(kDigits, '0'));
  checksum = Crc32(Crc32(checksum, header.substr(digits + kDigits)), data);
  if (header.substr(digits, kDigits) == Digits(checksum)) return true;
  return InvalidArgument("it is damaged: its checksum is {}, not {}", Digits(checksum),
                         header.substr(digits, kDigits));
}

// Rejects repeated keys: the parser uses the last of them, but other readers may not. Throws
// json::exception for invalid JSON.
Status ParseHeader(std::string_view header, json& root) {
  std::vector<std::set<std::string>> open;  // keys of the open objects
  std::string repeated;
  root = json::parse(header, [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key) {
      const auto name = parsed.get<std::string>();
      if (!open.back().insert(name).second) repeated = name;
    }
    return true;
  });
  if (repeated.empty()) return {};
  return InvalidArgument("the name '{}' appears twice in its header", repeated);
}

Result<Safetensors> Parse(std::string_view file) {
  std::uint64_t length = 0;
  if (file.size() >= kLengthBytes) std::memcpy(&length, file.data(), kLengthBytes);
  if (file.size() < kLengthBytes || length > file.size() - kLengthBytes) {
    return InvalidArgument("it is truncated or of another format");
  }
  const std::string_view header = file.substr(kLengthBytes, length);
  const std::string_view data = file.substr(kLengthBytes + length);
  Safetensors content;
  PENSTOCK_TRY(content.verified, VerifyChecksum(header, data));
  json root;
  PENSTOCK_TRY_STATUS(ParseHeader(header, root));
  for (const auto& [name, entry] : root.items()) {
    if (name == "__metadata__") {
      content.metadata = entry.get<std::map<std::string, std::string>>();
      content.metadata.erase(kChecksum);
      continue;
    }
    auto tensor = ReadTensor(entry, data);
    if (!tensor) return InvalidArgument("tensor '{}': {}", name, tensor.error().message);
    content.tensors.emplace(name, *std::move(tensor));
  }
  return content;
}

std::string_view BytesOf(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

Result<SafetensorsLayout> SafetensorsLayout::Make(
    const std::map<std::string, std::string>& metadata, std::vector<TensorEntry> entries) {
  json header = {{"__metadata__", metadata}};
  header["__metadata__"][kChecksum] = kNoChecksum;
  SafetensorsLayout layout;
  layout.begins_ = {0};
  for (const TensorEntry& entry : entries) {
    PENSTOCK_TRY(const char* const dtype, NameOf(entry.dtype));
    const std::size_t begin = layout.begins_.back();
    const std::size_t end = begin + entry.bytes;
    header[entry.name] = {{"dtype", dtype}, {"shape", entry.shape}, {"data_offsets", {begin, end}}};
    layout.begins_.push_back(end);
  }
  layout.entries_ = std::move(entries);
  layout.header_ = header.dump();
  layout.header_.append((kAlignment - layout.header_.size() % kAlignment) % kAlignment, ' ');
  return layout;
}

std::size_t SafetensorsLayout::head_bytes() const { return kLengthBytes + header_.size(); }

std::string SafetensorsLayout::Head(std::span<const std::uint32_t> checksums) const {
  std::uint32_t checksum = Crc32(0, header_);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto bytes = static_cast<z_off_t>(entries_[i].bytes);
    checksum = static_cast<std::uint32_t>(crc32_combine(checksum, checksums[i], bytes));
  }
  const std::uint64_t length = header_.size();
  std::string head(reinterpret_cast<const char*>(&length), kLengthBytes);
  head += header_;
  head.replace(head.find(kChecksumText) + kChecksumText.size(), kDigits, Digits(checksum));
  return head;
}

std::uint32_t ChecksumOf(std::string_view bytes) { return Crc32(0, bytes); }

Status WriteSafetensors(const std::string& path, const Safetensors& content) {
  std::vector<at::Tensor> values;  // own the bytes of the pieces
  std::vector<TensorEntry> entries;
  std::vector<std::uint32_t> checksums;
  std::vector<std::string_view> pieces(1);
  for (const auto& [name, tensor] : content.tensors) {
    const at::Tensor& value = values.emplace_back(tensor.to(at::kCPU).contiguous());
    entries.push_back({name, value.scalar_type(), value.sizes().vec(), value.nbytes()});
    pieces.push_back(BytesOf(value));
    checksums.push_back(ChecksumOf(pieces.back()));
  }
  PENSTOCK_TRY(const SafetensorsLayout layout,
               SafetensorsLayout::Make(content.metadata, std::move(entries)));
  const std::string head = layout.Head(checksums);
  pieces[0] = head;
  return WriteFileDurably(path, pieces);
}

Result<Safetensors> ReadSafetensors(const std::string& path) {
  PENSTOCK_TRY(const std::string file, ReadFile(path));
  Result<Safetensors> content = InvalidArgument("");
  try {
    content = Parse(file);
  } catch (const json::exception& error) {
    content = InvalidArgument("{}", error.what());
  }
  if (content) return content;
  return InvalidArgument("{} is not a safetensors file: {}", path, content.error().message);
}

}  // namespace penstock
