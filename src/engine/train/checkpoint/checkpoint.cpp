#include "train/checkpoint/checkpoint.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "checkpoint/checkpoint_folder.h"
#include "train/checkpoint/single_file.h"
#include "train/optimizer/optimizer.h"

namespace penstock {
namespace {

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool IsWeight(std::string_view name) { return !name.starts_with(kOptimizerPrefix); }

// Checks that the checkpoint has the whole tensor of a piece, with the same shape and dtype.
Status CheckPiece(const Checkpoint& checkpoint, const StatePiece& piece) {
  const ManifestTensor* const stored = checkpoint.reader.Find(piece.name);
  if (stored == nullptr) {
    return InvalidArgument("{}: '{}' is missing", checkpoint.path(), piece.name);
  }
  if (stored->shape != piece.layout.shape()) {
    return InvalidArgument("{}: '{}' is {}, not {}", checkpoint.path(), piece.name,
                           ShapeText(stored->shape), ShapeText(piece.layout.shape()));
  }
  PENSTOCK_TRY(const std::string dtype, DtypeName(piece.values.scalar_type()));
  if (stored->dtype == dtype || (piece.casts && stored->dtype == "F32")) return {};
  return InvalidArgument("{}: '{}' is {}, not {}", checkpoint.path(), piece.name, stored->dtype,
                         dtype);
}

Status ReadPiece(Checkpoint& checkpoint, const StatePiece& piece) {
  const bool casts = piece.casts && checkpoint.reader.Find(piece.name)->dtype == "F32";
  const at::ScalarType dtype = casts ? at::kFloat : piece.values.scalar_type();
  const bool in_place =
      piece.values.is_cpu() && piece.values.is_contiguous() && dtype == piece.values.scalar_type();
  const at::Tensor to = in_place ? piece.values : at::empty(piece.values.sizes(), dtype);
  PENSTOCK_TRY_STATUS(checkpoint.reader.Read(
      piece.name, piece.layout, {static_cast<char*>(to.mutable_data_ptr()), to.nbytes()}));
  if (!in_place) piece.values.copy_(to);
  return {};
}

NamedState StateOf(const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  NamedState state;
  for (const auto& [name, tensor] : tensors) state.emplace_back(name, tensor);
  return state;
}

}  // namespace

bool Checkpoint::has_optimizer() const {
  const auto& tensors = reader.manifest().tensors;
  return std::ranges::any_of(tensors, [](const auto& each) { return !IsWeight(each.first); });
}

std::string OptimizerTensorName(std::string_view kind, std::string_view parameter) {
  return fmt::format("{}{}.{}", kOptimizerPrefix, kind, parameter);
}

NamedState OptimizerState(const Optimizer& optimizer, const std::set<std::string>& without) {
  NamedState state;
  for (const OptimizerTensor& each : optimizer.States()) {
    if (without.contains(each.parameter)) continue;
    state.emplace_back(OptimizerTensorName(each.kind, each.parameter), each.values, each.layout);
  }
  return state;
}

Manifest ManifestOf(const CheckpointInfo& info) {
  Manifest manifest;
  manifest.step = info.step;
  manifest.seconds = info.seconds;
  manifest.config = ToYaml(info.config);
  manifest.data = info.data;
  return manifest;
}

Status SaveCheckpoint(const LanguageModel& model, const CheckpointInfo& info,
                      const std::string& path) {
  Collectives alone(nullptr);
  return SaveCheckpoint(alone, model, info, path);
}

Status SaveCheckpoint(Collectives& processes, const LanguageModel& model,
                      const CheckpointInfo& info, const std::string& path) {
  Safetensors content;
  content.metadata = MetadataOf(ManifestOf(info));
  for (const auto& [name, parameter] : model.Parameters()) content.tensors[name] = parameter;
  return WriteSingleFile(processes, path, content);
}

Result<Checkpoint> OpenCheckpoint(const std::string& path) {
  PENSTOCK_TRY(const std::string found, CheckpointAt(path));
  PENSTOCK_TRY(CheckpointReader reader, CheckpointReader::Open(found));
  const Manifest& manifest = reader.manifest();
  auto config = ParseTrainConfig(manifest.config, "its configuration");
  if (!config) {
    return InvalidArgument("{} is not a checkpoint of a run: {}", found, config.error().line());
  }
  CheckpointInfo info{manifest.step, *std::move(config), manifest.seconds, manifest.data};
  return Checkpoint{std::move(info), std::move(reader)};
}

Result<Checkpoint> OpenFullCheckpoint(const std::string& path) {
  const std::string folder = CheckpointFolder(path);
  std::error_code error;
  return OpenCheckpoint(std::filesystem::is_directory(folder, error) ? folder : path);
}

Status Restore(Checkpoint& checkpoint, const NamedState& state) {
  const at::NoGradGuard no_gradients;
  for (const StatePiece& piece : state) PENSTOCK_TRY_STATUS(CheckPiece(checkpoint, piece));
  // Copies of the same elements, of replicas for example, are read once.
  std::multimap<std::string, const StatePiece*> known;
  for (const StatePiece& piece : state) {
    const auto [first, last] = known.equal_range(piece.name);
    const auto same = std::find_if(first, last, [&](const auto& each) {
      const StatePiece& other = *each.second;
      return other.values.scalar_type() == piece.values.scalar_type() &&
             other.values.numel() == piece.values.numel() && other.layout == piece.layout;
    });
    if (same != last) {
      piece.values.copy_(same->second->values);
      continue;
    }
    PENSTOCK_TRY_STATUS(ReadPiece(checkpoint, piece));
    known.emplace(piece.name, &piece);
  }
  return {};
}

Status SetWeights(Checkpoint& checkpoint, const LanguageModel& model) {
  const bool has_all = std::ranges::find(model.stages, nullptr) == model.stages.end();
  const std::size_t parameters = model.Parameters().size();
  const auto& tensors = checkpoint.reader.manifest().tensors;
  const auto weights = static_cast<std::size_t>(
      std::ranges::count_if(tensors, [](const auto& each) { return IsWeight(each.first); }));
  if (has_all && weights > parameters) {
    return InvalidArgument("{} has {} parameters, but the model has {}", checkpoint.path(), weights,
                           parameters);
  }
  return Restore(checkpoint, StateOf(model.AllCopies()));
}

Status SetAverages(Checkpoint& checkpoint, const LanguageModel& model) {
  NamedState state;
  for (const auto& [name, tensor] : model.AllCopies()) {
    state.emplace_back(OptimizerTensorName(kAverageKind, name), tensor);
    if (checkpoint.reader.Find(state.back().name) != nullptr) continue;
    return InvalidArgument(
        "{} has no moving averages of the weights: only checkpoints of a run with optimizer.ema "
        "do",
        checkpoint.path());
  }
  return Restore(checkpoint, state);
}

}  // namespace penstock
