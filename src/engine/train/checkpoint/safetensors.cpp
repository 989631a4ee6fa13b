#include "train/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>

#include <array>
#include <cstring>
#include <vector>

#include "base/files.h"
#include "base/text/quote.h"
#include "checkpoint/crc32.h"

namespace penstock {
namespace {

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

// Returns whether the header has a checksum. Errors: if it is wrong.
Result<bool> VerifyChecksum(std::string_view header, std::string_view data) {
  const std::size_t digits = FindOwnChecksum(header);
  if (digits == std::string_view::npos) return false;
  const std::string computed = FormatCrc32(Crc32(data, OwnCrc32(header, digits)));
  const std::string_view stored = header.substr(digits, computed.size());
  if (stored == computed) return true;
  return InvalidArgument("it is damaged: its checksum is {}, not {}", computed, Quote(stored));
}

at::Tensor CopyTensor(const HeaderTensor& entry, std::string_view data) {
  at::Tensor tensor = at::empty(entry.shape, DtypeNamed(entry.dtype));
  const std::size_t bytes = entry.end - entry.begin;
  if (bytes > 0) std::memcpy(tensor.mutable_data_ptr(), data.data() + entry.begin, bytes);
  return tensor;
}

Result<Safetensors> Parse(std::string_view file) {
  PENSTOCK_TRY(const std::uint64_t length, HeaderLength(file, file.size()));
  const std::string_view header = file.substr(kHeaderLengthBytes, length);
  const std::string_view data = file.substr(kHeaderLengthBytes + length);
  Safetensors content;
  PENSTOCK_TRY(content.verified, VerifyChecksum(header, data));
  PENSTOCK_TRY(SafetensorsHeader parsed, ParseSafetensorsHeader(header, data.size()));
  content.metadata = std::move(parsed.metadata);
  for (const auto& [name, entry] : parsed.tensors) {
    content.tensors.emplace(name, CopyTensor(entry, data));
  }
  return content;
}

}  // namespace

Result<std::string> DtypeName(c10::ScalarType type) {
  for (const Dtype& known : kDtypes) {
    if (known.type == type) return std::string(known.name);
  }
  return InvalidArgument("safetensors files cannot contain {}", c10::toString(type));
}

c10::ScalarType DtypeNamed(std::string_view name) {
  for (const Dtype& known : kDtypes) {
    if (known.name == name) return known.type;
  }
  throw InternalError(fmt::format("the dtype {} is unknown", name));
}

std::string_view RawBytes(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

Status WriteSafetensors(const std::string& path, const Safetensors& content) {
  std::vector<at::Tensor> values;  // own the bytes of the pieces
  std::vector<TensorEntry> entries;
  std::vector<std::uint32_t> checksums;
  std::vector<std::string_view> pieces(1);
  for (const auto& [name, tensor] : content.tensors) {
    const at::Tensor& value = values.emplace_back(tensor.to(at::kCPU).contiguous());
    PENSTOCK_TRY(std::string dtype, DtypeName(value.scalar_type()));
    entries.push_back({name, std::move(dtype), value.sizes().vec(), value.nbytes()});
    pieces.push_back(RawBytes(value));
    checksums.push_back(Crc32(pieces.back()));
  }
  const SafetensorsLayout layout(content.metadata, std::move(entries));
  const std::string head = layout.Head(checksums);
  pieces[0] = head;
  return WriteFileDurably(path, pieces);
}

Result<Safetensors> ReadSafetensors(const std::string& path) {
  PENSTOCK_TRY(const std::string file, ReadFile(path));
  Result<Safetensors> content = Parse(file);
  if (content) return content;
  return InvalidArgument("{} is not a safetensors file: {}", path, content.error().line());
}

}  // namespace penstock
