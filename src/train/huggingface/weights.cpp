#include "train/huggingface/weights.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "base/index.h"
#include "base/text/quote.h"
#include "model/huggingface.h"
#include "train/checkpoint/safetensors.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr FileLimit kIndexFile{std::size_t{64} << 20, "index"};

// Returns the names of the files that an index lists.
Result<std::set<std::string>> FilesOfIndex(const std::string& path) {
  PENSTOCK_TRY(const std::string text, ReadFile(path, kIndexFile));
  const auto root = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object()) {
    return InvalidArgument("{}: weight_map, an object, is missing", path);
  }
  std::set<std::string> files;
  for (const auto& [tensor, file] : root["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || fs::path(name).filename() != name) {
      return InvalidArgument("{}: {} is not in a file of the folder", path, Quote(tensor));
    }
    files.insert(name);
  }
  return files;
}

bool IsReal(std::string_view dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16" || dtype == "F64";
}

}  // namespace

Result<HuggingFaceWeights> HuggingFaceWeights::Open(const std::string& folder) {
  std::error_code error;
  HuggingFaceWeights weights(folder);
  if (!HasHuggingFaceWeights(folder)) {
    return NotFound("{} has no weights: neither {} nor {}", folder, kHuggingFaceWeights,
                    kHuggingFaceIndex);
  }
  if (fs::exists(fs::path(folder) / kHuggingFaceWeights, error)) {
    PENSTOCK_TRY_STATUS(weights.AddFile(kHuggingFaceWeights));
    return weights;
  }
  PENSTOCK_TRY(const std::set<std::string> files,
               FilesOfIndex((fs::path(folder) / kHuggingFaceIndex).string()));
  for (const std::string& file : files) PENSTOCK_TRY_STATUS(weights.AddFile(file));
  return weights;
}

Status HuggingFaceWeights::AddFile(const std::string& name) {
  const std::string path = (fs::path(folder_) / name).string();
  PENSTOCK_TRY(ReadableFile file, ReadableFile::Open(path));
  std::string start(std::min<std::uint64_t>(kHeaderLengthBytes, file.size()), '\0');
  PENSTOCK_TRY_STATUS(file.ReadAt(0, start));
  const auto length = HeaderLength(start, file.size());
  if (!length) return InvalidArgument("{}: {}", path, length.error().message);
  const std::uint64_t data_begin = kHeaderLengthBytes + *length;
  std::string json(*length, '\0');
  PENSTOCK_TRY_STATUS(file.ReadAt(kHeaderLengthBytes, json));
  auto header = ParseSafetensorsHeader(json, file.size() - data_begin);
  if (!header) return InvalidArgument("{}: {}", path, header.error().message);
  for (auto& [tensor, entry] : header->tensors) {
    places_.insert_or_assign(tensor, Place{files_.size(), data_begin, std::move(entry)});
  }
  files_.push_back(std::move(file));
  return {};
}

Status HuggingFaceWeights::Read(const ModelConfig& config, const std::string& parameter,
                                std::span<const std::int64_t> shape, std::int64_t begin,
                                const at::Tensor& value) const {
  PENSTOCK_TRY(const std::string name, HuggingFaceName(config, parameter));
  const auto found = places_.find(name);
  if (found == places_.end()) return InvalidArgument("{} lacks the tensor {}", folder_, name);
  const auto& [file, data_begin, tensor] = found->second;
  if (!std::ranges::equal(tensor.shape, shape) || !IsReal(tensor.dtype)) {
    return InvalidArgument("{}: {} is {} [{}], not a real [{}]", files_[file].path(), name,
                           tensor.dtype, fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
  }
  at::Tensor read = at::empty({value.numel()}, DtypeNamed(tensor.dtype));
  const std::uint64_t offset = data_begin + tensor.begin + Index(begin) * read.itemsize();
  PENSTOCK_TRY_STATUS(
      files_[file].ReadAt(offset, {static_cast<char*>(read.mutable_data_ptr()), read.nbytes()}));
  value.copy_(read.view(value.sizes()));
  return {};
}

}  // namespace penstock
