#include "train/huggingface/weights.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
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

const HuggingFaceWeights::Place* HuggingFaceWeights::Find(const std::string& name) const {
  const auto found = places_.find(name);
  if (found != places_.end()) return &found->second;
  // Some published files have the names of the model without its head: "h.0.ln_1.weight".
  const auto inner = places_.find(name.substr(name.find('.') + 1));
  return inner == places_.end() ? nullptr : &inner->second;
}

Status HuggingFaceWeights::ReadTensor(const std::string& name, std::span<const std::int64_t> shape,
                                      bool rows_may_differ, std::int64_t begin,
                                      const at::Tensor& value) const {
  const Place* const found = Find(name);
  if (found == nullptr) return InvalidArgument("{} lacks the tensor {}", folder_, name);
  const auto& [file, data_begin, tensor] = *found;
  const std::span<const std::int64_t> theirs(tensor.shape);
  const bool same =
      std::ranges::equal(theirs, shape) ||
      (rows_may_differ && theirs.size() == shape.size() && !shape.empty() && theirs[0] > shape[0] &&
       std::ranges::equal(theirs.subspan(1), shape.subspan(1)));
  if (!same || !IsReal(tensor.dtype)) {
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

Status HuggingFaceWeights::ReadExperts(const HuggingFaceName& name,
                                       std::span<const std::int64_t> shape, std::int64_t begin,
                                       const at::Tensor& value) const {
  const std::span<const std::int64_t> of_one = shape.subspan(1);
  const std::int64_t size =
      std::accumulate(of_one.begin(), of_one.end(), std::int64_t{1}, std::multiplies<>());
  const at::Tensor flat = value.view({-1});
  for (std::int64_t done = 0; done < flat.numel();) {
    const std::int64_t expert = (begin + done) / size, first = (begin + done) % size;
    const std::int64_t count = std::min(size - first, flat.numel() - done);
    PENSTOCK_TRY_STATUS(ReadTensor(name.OfExpert(expert), of_one, /*rows_may_differ=*/false, first,
                                   flat.narrow(0, done, count)));
    done += count;
  }
  return {};
}

Status HuggingFaceWeights::ReadTransposed(const std::string& name,
                                          std::span<const std::int64_t> shape, std::int64_t begin,
                                          const at::Tensor& value) const {
  const std::vector<std::int64_t> theirs = {shape[1], shape[0]};
  const at::Tensor whole = at::empty(theirs, value.options());
  PENSTOCK_TRY_STATUS(ReadTensor(name, theirs, /*rows_may_differ=*/false, 0, whole));
  value.view({-1}).copy_(whole.t().reshape({-1}).narrow(0, begin, value.numel()));
  return {};
}

Status HuggingFaceWeights::Read(const ModelConfig& config, const std::string& parameter,
                                std::span<const std::int64_t> shape, std::int64_t begin,
                                const at::Tensor& value) const {
  PENSTOCK_TRY(const HuggingFaceName name, HuggingFaceNameOf(config, parameter));
  switch (name.layout) {
    case TensorLayout::kPerExpert:
      return ReadExperts(name, shape, begin, value);
    case TensorLayout::kTransposed:
      return ReadTransposed(name.name, shape, begin, value);
    case TensorLayout::kSame:
    case TensorLayout::kLeadingRows:
      break;
  }
  return ReadTensor(name.name, shape, name.layout == TensorLayout::kLeadingRows, begin, value);
}

}  // namespace penstock
