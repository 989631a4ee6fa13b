#include "train/huggingface/weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>

#include "base/files.h"
#include "base/index.h"
#include "base/text/quote.h"
#include "base/text/strict_json.h"
#include "graph/capture/shapes_only.h"
#include "model/model.h"
#include "model_spec/huggingface_config.h"
#include "train/checkpoint/safetensors.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr FileLimit kIndexFile{std::size_t{64} << 20, "index"};

// Returns the names of the files that an index lists.
Result<std::set<std::string>> FilesOfIndex(const std::string& path) {
  PENSTOCK_TRY(const std::string text, ReadFile(path, kIndexFile));
  const auto root = ParseStrictJson(text);
  if (!root) return InvalidArgument("{}: {}", path, root.error().line());
  const auto map = root->find("weight_map");
  if (map == root->end() || !map->is_object()) {
    return InvalidArgument("{}: weight_map, an object, is missing", path);
  }
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->items()) {
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

constexpr const char* kEmbedding = "embedding.weight";
constexpr const char* kHead = "head.weight";
constexpr const char* kPositions = "positions.weight";
constexpr std::int64_t kComparedAtOnce = std::int64_t{1} << 22;

// Whether the embedding is also the head.
bool IsTied(const ModelConfig& config) {
  const std::unique_ptr<ModelOptions> options = MakeModelOptions(config.name);
  if (options == nullptr || !ReadOptions(config, *options)) return false;
  for (const Field& field : options->Fields()) {
    if (field.key == "tied") return *std::get<bool*>(field.value);
  }
  return false;
}

// Whether a tensor is a buffer that the model computes: a table of rotary positions, a causal mask.
bool IsComputed(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias") || name.ends_with("position_ids");
}

// The experts of a layer as transformers 5 has them: one tensor [experts, rows, columns], with the
// rows of these matrices one after another.
struct FusedExperts {
  std::string_view suffix;
  std::vector<std::string_view> matrices;
};
const std::array kFusedExperts = {
    FusedExperts{".experts.gate_up_proj", {"gate_proj", "up_proj"}},
    FusedExperts{".experts.down_proj", {"down_proj"}},
};

// Mixtral's names in files that transformers 5 saves with its own names.
const std::array<std::pair<std::string_view, std::string_view>, 4> kNewNames = {{
    {".block_sparse_moe.", ".mlp."},
    {".w1.", ".gate_proj."},
    {".w2.", ".down_proj."},
    {".w3.", ".up_proj."},
}};

std::string NewName(std::string name) {
  for (const auto& [before, now] : kNewNames) {
    const std::size_t at = name.find(before);
    if (at != std::string::npos) name.replace(at, before.size(), now);
  }
  return name;
}

std::string WithoutPrefix(const std::string& name) { return name.substr(name.find('.') + 1); }

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
  if (!length) return InvalidArgument("{}: {}", path, length.error().line());
  const std::uint64_t data_begin = kHeaderLengthBytes + *length;
  std::string json(*length, '\0');
  PENSTOCK_TRY_STATUS(file.ReadAt(kHeaderLengthBytes, json));
  auto header = ParseSafetensorsHeader(json, file.size() - data_begin);
  if (!header) return InvalidArgument("{}: {}", path, header.error().line());
  for (auto& [tensor, entry] : header->tensors) {
    AddTensor(tensor, StoredTensor{files_.size(), data_begin, std::move(entry)});
  }
  files_.push_back(std::move(file));
  return {};
}

void HuggingFaceWeights::AddTensor(const std::string& name, StoredTensor tensor) {
  const std::vector<std::int64_t> shape = tensor.tensor.shape;
  for (const FusedExperts& fused : kFusedExperts) {
    const auto matrices = static_cast<std::int64_t>(fused.matrices.size());
    if (!name.ends_with(fused.suffix) || shape.size() != 3 || shape[1] % matrices != 0) continue;
    const std::string experts = name.substr(0, name.rfind('.'));
    const std::uint64_t bytes = tensor.tensor.end - tensor.tensor.begin;
    StoredTensor one = tensor;
    one.tensor.shape = {shape[1] / matrices, shape[2]};
    for (std::int64_t i = 0; i < shape[0] * matrices; ++i) {
      one.tensor.end = one.tensor.begin + bytes / Index(shape[0] * matrices);
      tensors_.insert_or_assign(fmt::format("{}.{}.{}.weight", experts, i / matrices,
                                            fused.matrices[Index(i % matrices)]),
                                one);
      one.tensor.begin = one.tensor.end;
    }
    return;
  }
  tensors_.insert_or_assign(name, std::move(tensor));
}

std::string HuggingFaceWeights::NameInFiles(const std::string& name) const {
  // Some published files have the names of the model without its head: "h.0.ln_1.weight".
  for (std::string candidate : {name, WithoutPrefix(name), NewName(name)}) {
    if (tensors_.contains(candidate)) return candidate;
  }
  return "";
}

const HuggingFaceWeights::StoredTensor* HuggingFaceWeights::Find(const std::string& name) const {
  const auto found = tensors_.find(NameInFiles(name));
  return found == tensors_.end() ? nullptr : &found->second;
}

Result<HuggingFaceName> HuggingFaceWeights::NameOf(const ModelConfig& config,
                                                   const std::string& parameter) const {
  PENSTOCK_TRY(HuggingFaceName name, HuggingFaceNameOf(config, parameter));
  if (parameter != kEmbedding || Find(name.name) != nullptr || !IsTied(config)) return name;
  PENSTOCK_TRY(HuggingFaceName head, HuggingFaceNameOf(config, kHead));
  return Find(head.name) == nullptr ? name : head;
}

Result<bool> HuggingFaceWeights::HasUntiedHead(const ModelConfig& config) const {
  if (!IsTied(config)) return false;
  PENSTOCK_TRY(const HuggingFaceName embedding, HuggingFaceNameOf(config, kEmbedding));
  PENSTOCK_TRY(const HuggingFaceName head, HuggingFaceNameOf(config, kHead));
  const StoredTensor* const stored[] = {Find(embedding.name), Find(head.name)};
  if (stored[0] == nullptr || stored[1] == nullptr) return false;
  const std::vector<std::int64_t>& shape = stored[0]->tensor.shape;
  if (stored[1]->tensor.shape != shape) return true;
  const std::int64_t size =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  for (std::int64_t begin = 0; begin < size; begin += kComparedAtOnce) {
    const at::Tensor one = at::empty({std::min(kComparedAtOnce, size - begin)}, at::kDouble);
    const at::Tensor other = at::empty_like(one);
    PENSTOCK_TRY_STATUS(ReadTensor(embedding.name, shape, /*rows_may_differ=*/false, begin, one));
    PENSTOCK_TRY_STATUS(ReadTensor(head.name, shape, /*rows_may_differ=*/false, begin, other));
    if (!at::equal(one, other)) return true;
  }
  return false;
}

std::optional<std::int64_t> HuggingFaceWeights::Positions(const ModelConfig& config) const {
  const auto name = HuggingFaceNameOf(config, kPositions);
  const StoredTensor* const stored = name ? Find(name->name) : nullptr;
  if (stored == nullptr || stored->tensor.shape.empty()) return {};
  return stored->tensor.shape.front();
}

Result<std::vector<std::string>> HuggingFaceWeights::Unread(const ModelConfig& config) const {
  const ShapesOnly shapes;
  PENSTOCK_TRY(const std::vector<LayerRange> ranges, SplitLayers(config.layers, 1));
  PENSTOCK_TRY(const auto model, BuildUninitializedStage(config, ranges.front()));
  std::set<std::string> read;
  const auto add = [&](const std::string& name) { read.insert(NameInFiles(name)); };
  for (const auto& parameter : model->named_parameters()) {
    PENSTOCK_TRY(const HuggingFaceName name, NameOf(config, parameter.key()));
    if (name.layout != TensorLayout::kPerExpert) {
      add(name.name);
      continue;
    }
    for (std::int64_t expert = 0; expert < parameter.value().size(0); ++expert) {
      add(name.OfExpert(expert));
    }
  }
  // Equal to the embedding, see HasUntiedHead.
  if (const auto head = HuggingFaceNameOf(config, kHead); head && IsTied(config)) add(head->name);
  std::vector<std::string> unread;
  for (const auto& [name, stored] : tensors_) {
    if (!read.contains(name) && !IsComputed(name)) unread.push_back(name);
  }
  return unread;
}

Status HuggingFaceWeights::ReadTensor(const std::string& name, std::span<const std::int64_t> shape,
                                      bool rows_may_differ, std::int64_t begin,
                                      const at::Tensor& value) const {
  const StoredTensor* const found = Find(name);
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
                                const Layout& layout, const at::Tensor& value) const {
  const std::vector<std::int64_t>& shape = layout.shape();
  const std::int64_t begin = layout.begin();
  if (layout.box()) {
    const auto options = value.options().device(at::kCPU);
    const at::Tensor whole = at::empty(shape, options);
    PENSTOCK_TRY_STATUS(Read(config, parameter, Layout(shape), whole));
    const at::Tensor own = at::empty({value.numel()}, options);
    layout.ForRuns(own.numel(), [&](std::int64_t at, std::int64_t to, std::int64_t count) {
      own.narrow(0, to, count).copy_(whole.view({-1}).narrow(0, at, count));
      return true;
    });
    const at::NoGradGuard no_gradients;
    value.copy_(own.view(value.sizes()));
    return {};
  }
  PENSTOCK_TRY(const HuggingFaceName name, NameOf(config, parameter));
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
