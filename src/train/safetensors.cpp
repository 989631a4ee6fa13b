#include "train/safetensors.h"

#include <ATen/ops/empty.h>

#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/files.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kAlignment = 8;  // of the tensors' bytes, by spaces behind the header
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
  return InvalidArgument("safetensors files hold no {}", c10::toString(type));
}

Result<c10::ScalarType> TypeNamed(const std::string& name) {
  for (const Dtype& known : kDtypes) {
    if (name == known.name) return known.type;
  }
  return InvalidArgument("dtype {} is not known", name);
}

// Throws json::exception on another form.
Result<at::Tensor> ReadTensor(const json& entry, std::string_view data) {
  PENSTOCK_TRY(const c10::ScalarType type, TypeNamed(entry.at("dtype").get<std::string>()));
  const auto shape = entry.at("shape").get<std::vector<std::int64_t>>();
  const auto begin = entry.at("data_offsets").at(0).get<std::size_t>();
  const auto end = entry.at("data_offsets").at(1).get<std::size_t>();
  if (begin > end || end > data.size()) return InvalidArgument("its bytes are not in the file");
  std::size_t bytes = c10::elementSize(type);
  for (const std::int64_t size : shape) {
    // More than the file holds is refused before it can overflow.
    if (size < 0 || (size > 0 && bytes > data.size() / static_cast<std::size_t>(size))) {
      return InvalidArgument("its shape does not fit the file");
    }
    bytes *= static_cast<std::size_t>(size);
  }
  if (bytes != end - begin) {
    return InvalidArgument("it has {} bytes where its shape has {}", end - begin, bytes);
  }
  at::Tensor tensor = at::empty(shape, type);
  if (bytes > 0) std::memcpy(tensor.mutable_data_ptr(), data.data() + begin, bytes);
  return tensor;
}

Result<Safetensors> Parse(std::string_view file) {
  std::uint64_t length = 0;
  if (file.size() >= kLengthBytes) std::memcpy(&length, file.data(), kLengthBytes);
  if (file.size() < kLengthBytes || length > file.size() - kLengthBytes) {
    return InvalidArgument("it is not one, or only a part of one");
  }
  const json root = json::parse(file.substr(kLengthBytes, length));
  Safetensors content;
  for (const auto& [name, entry] : root.items()) {
    if (name == "__metadata__") {
      content.metadata = entry.get<std::map<std::string, std::string>>();
      continue;
    }
    auto tensor = ReadTensor(entry, file.substr(kLengthBytes + length));
    if (!tensor) return InvalidArgument("tensor '{}': {}", name, tensor.error().message);
    content.tensors.emplace(name, *std::move(tensor));
  }
  return content;
}

}  // namespace

Status WriteSafetensors(const std::string& path, const Safetensors& content) {
  json header = json::object();
  if (!content.metadata.empty()) header["__metadata__"] = content.metadata;
  std::string data;
  for (const auto& [name, tensor] : content.tensors) {
    const at::Tensor value = tensor.to(at::kCPU).contiguous();
    PENSTOCK_TRY(const char* const dtype, NameOf(value.scalar_type()));
    const std::size_t begin = data.size();
    data.append(static_cast<const char*>(value.const_data_ptr()), value.nbytes());
    header[name] = {
        {"dtype", dtype}, {"shape", value.sizes().vec()}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  const std::uint64_t length = text.size();
  std::string file(kLengthBytes, '\0');
  std::memcpy(file.data(), &length, kLengthBytes);
  return WriteFileAtomically(path, file + text + data);
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
