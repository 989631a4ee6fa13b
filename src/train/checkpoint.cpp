#include "train/checkpoint.h"

#include <bit>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/files.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kAlignment = 8;  // of the tensors' bytes, by spaces behind the header
static_assert(std::endian::native == std::endian::little, "the format is little-endian");

struct StoredTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string_view bytes;  // of the file's content
};

struct Content {
  std::string file;  // owns what `tensors` points to
  std::map<std::string, StoredTensor> tensors;
  CheckpointInfo info;
};

std::string FileOf(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return path;
  return (std::filesystem::path(path) / "model.safetensors").string();
}

// What the header says of one tensor. Throws json::exception on another form.
Result<StoredTensor> ReadTensor(const json& entry, std::string_view data) {
  StoredTensor tensor{
      entry.at("dtype").get<std::string>(), entry.at("shape").get<std::vector<std::int64_t>>(), {}};
  const auto begin = entry.at("data_offsets").at(0).get<std::size_t>();
  const auto end = entry.at("data_offsets").at(1).get<std::size_t>();
  if (begin > end || end > data.size()) return InvalidArgument("its bytes are not in the file");
  tensor.bytes = data.substr(begin, end - begin);
  std::size_t elements = 1;
  for (const std::int64_t size : tensor.shape) {
    if (size < 0) return InvalidArgument("a size is negative");
    elements *= static_cast<std::size_t>(size);
  }
  if (tensor.dtype != "F32" || elements * sizeof(float) != tensor.bytes.size()) {
    return InvalidArgument("F32 of {} elements is expected", elements);
  }
  return tensor;
}

Status ReadHeader(Content& content, std::string_view header, std::string_view data) {
  const json root = json::parse(header);
  for (const auto& [name, entry] : root.items()) {
    if (name == "__metadata__") continue;
    auto tensor = ReadTensor(entry, data);
    if (!tensor) return InvalidArgument("tensor '{}': {}", name, tensor.error().message);
    content.tensors.emplace(name, std::move(*tensor));
  }
  const json& metadata = root.at("__metadata__");
  content.info.step = std::stoll(metadata.at("step").get<std::string>());
  PENSTOCK_TRY(content.info.config,
               ParseTrainConfig(metadata.at("config").get<std::string>(), "its configuration"));
  return {};
}

Result<Content> ReadContent(const std::string& path) {
  const std::string file = FileOf(path);
  Content content;
  PENSTOCK_TRY(content.file, ReadFile(file));
  const std::string_view view = content.file;
  std::uint64_t length = 0;
  if (view.size() >= kLengthBytes) std::memcpy(&length, view.data(), kLengthBytes);
  if (view.size() < kLengthBytes || length > view.size() - kLengthBytes) {
    return InvalidArgument("{} is not a safetensors file, or only a part of one", file);
  }
  Status status;
  try {
    status =
        ReadHeader(content, view.substr(kLengthBytes, length), view.substr(kLengthBytes + length));
  } catch (const std::exception& error) {  // of json and of std::stoll
    status = InvalidArgument("{}", error.what());
  }
  if (!status) {
    return InvalidArgument("{} is not a checkpoint of a run: {}", file, status.error().message);
  }
  return content;
}

}  // namespace

Status SaveCheckpoint(const LanguageModel& model, const CheckpointInfo& info,
                      const std::string& path) {
  json header;
  header["__metadata__"] = {
      {"format", "pt"}, {"step", std::to_string(info.step)}, {"config", ToYaml(info.config)}};
  std::string data;
  for (const auto& [name, parameter] : model.Parameters()) {
    const at::Tensor value = parameter.to(at::kCPU, at::kFloat).contiguous();
    const std::size_t begin = data.size();
    data.append(static_cast<const char*>(value.const_data_ptr()), value.nbytes());
    header[name] = {
        {"dtype", "F32"}, {"shape", value.sizes().vec()}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  const std::uint64_t length = text.size();
  std::string file(kLengthBytes, '\0');
  std::memcpy(file.data(), &length, kLengthBytes);
  return WriteFileAtomically(path, file + text + data);
}

Result<CheckpointInfo> ReadCheckpointInfo(const std::string& path) {
  PENSTOCK_TRY(Content content, ReadContent(path));
  return std::move(content.info);
}

Status LoadCheckpoint(const std::string& path, LanguageModel& model) {
  PENSTOCK_TRY(const Content content, ReadContent(path));
  const auto parameters = model.Parameters();
  for (const auto& [name, parameter] : parameters) {
    const auto found = content.tensors.find(name);
    if (found == content.tensors.end()) {
      return InvalidArgument("{}: parameter '{}' is missing", path, name);
    }
    if (parameter.sizes() != c10::IntArrayRef(found->second.shape)) {
      return InvalidArgument("{}: parameter '{}' is [{}], not [{}]", path, name,
                             fmt::join(found->second.shape, ", "),
                             fmt::join(parameter.sizes().vec(), ", "));
    }
  }
  if (content.tensors.size() != parameters.size()) {
    return InvalidArgument("{} holds {} parameters, the model has {}", path, content.tensors.size(),
                           parameters.size());
  }
  for (const auto& [name, parameter] : parameters) {
    const std::string_view bytes = content.tensors.at(name).bytes;
    at::Tensor value = at::empty(parameter.sizes(), at::kFloat);
    std::memcpy(value.mutable_data_ptr(), bytes.data(), bytes.size());
    parameter.copy_(value);
  }
  return {};
}

}  // namespace penstock
