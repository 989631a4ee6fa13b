#include "train/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/files.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/write_together.h"
#include "train/optimizer/optimizer.h"

namespace penstock {
namespace {

constexpr std::string_view kOptimizer = "optimizer.";

// Parses the whole text as a number of at least 0, in the form that SetInfo writes.
template <class T>
bool ParseNumber(std::string_view text, T& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && number >= 0;
}

Status ReadInfo(const Safetensors& file, CheckpointInfo& info) {
  const auto text = [&](const char* key) -> Result<std::string> {
    const auto found = file.metadata.find(key);
    if (found == file.metadata.end()) return InvalidArgument("its {} is missing", key);
    return found->second;
  };
  if (!file.verified) return InvalidArgument("its checksum is missing");
  PENSTOCK_TRY(const std::string step, text("step"));
  PENSTOCK_TRY(const std::string seconds, text("seconds"));
  PENSTOCK_TRY(const std::string config, text("config"));
  if (!ParseNumber(step, info.step)) {
    return InvalidArgument("its step '{}' is not a number of steps", step);
  }
  if (!ParseNumber(seconds, info.seconds) || !std::isfinite(info.seconds)) {
    return InvalidArgument("its seconds '{}' are not a duration", seconds);
  }
  PENSTOCK_TRY(info.config, ParseTrainConfig(config, "its configuration"));
  return {};
}

// Weights and optimizer state are in fp32.
Status TakeTensors(Safetensors& stored, Checkpoint& content) {
  for (auto& [name, tensor] : stored.tensors) {
    if (tensor.scalar_type() != at::kFloat) {
      return InvalidArgument("tensor '{}' is not F32", name);
    }
    auto& to = name.starts_with(kOptimizer) ? content.optimizer : content.weights;
    to.emplace(name, std::move(tensor));
  }
  return {};
}

std::string Sizes(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes().vec(), ", "));
}

using Tensors = std::map<std::string, at::Tensor>;

// Checks that `from` has all tensors of `to`, with the same shapes.
Status CheckState(const Checkpoint& checkpoint, const Tensors& from, const NamedState& to) {
  for (const auto& [name, tensor] : to) {
    const auto found = from.find(name);
    if (found == from.end()) return InvalidArgument("{}: '{}' is missing", checkpoint.path, name);
    if (found->second.sizes() == tensor.sizes()) continue;
    return InvalidArgument("{}: '{}' is {}, not {}", checkpoint.path, name, Sizes(found->second),
                           Sizes(tensor));
  }
  return {};
}

void CopyState(const Tensors& from, const NamedState& to) {
  for (const auto& [name, tensor] : to) tensor.copy_(from.at(name));
}

}  // namespace

NamedState OptimizerState(const AdamW& optimizer, const std::set<std::string>& without) {
  NamedState tensors;
  const auto add = [&](const char* kind, const std::string& parameter, const at::Tensor& tensor) {
    tensors.emplace_back(fmt::format("{}{}.{}", kOptimizer, kind, parameter), tensor);
  };
  for (const AdamState& state : optimizer.States()) {
    if (without.contains(state.parameter)) continue;
    add("first_moment", state.parameter, state.first_moment);
    add("second_moment", state.parameter, state.second_moment);
    add("steps", state.parameter, state.steps);
  }
  return tensors;
}

void SetInfo(const CheckpointInfo& info, Safetensors& content) {
  content.metadata = {{"format", "pt"},
                      {"step", std::to_string(info.step)},
                      {"seconds", fmt::format("{}", info.seconds)},
                      {"config", ToYaml(info.config)}};
}

Status SaveCheckpoint(const LanguageModel& model, const CheckpointInfo& info,
                      const std::string& path) {
  Collectives alone(nullptr);
  return SaveCheckpoint(alone, model, info, path);
}

Status SaveCheckpoint(Collectives& hosts, const LanguageModel& model, const CheckpointInfo& info,
                      const std::string& path) {
  Safetensors content;
  SetInfo(info, content);
  for (const auto& [name, parameter] : model.Parameters()) content.tensors[name] = parameter;
  return WriteTogether(hosts, path, content);
}

Result<Checkpoint> ReadCheckpoint(const std::string& path) {
  PENSTOCK_TRY(const std::string file, CheckpointFileOf(path));
  PENSTOCK_TRY(Safetensors stored, ReadSafetensors(file));
  Checkpoint content;
  content.path = file;
  Status status = ReadInfo(stored, content.info);
  if (status) status = TakeTensors(stored, content);
  if (status) return content;
  return InvalidArgument("{} is not a checkpoint of a run: {}", file, status.error().message);
}

Status SetWeights(const Checkpoint& checkpoint, const LanguageModel& model) {
  const NamedState parameters = model.Parameters();
  PENSTOCK_TRY_STATUS(CheckState(checkpoint, checkpoint.weights, parameters));
  const bool has_all = std::ranges::find(model.stages, nullptr) == model.stages.end();
  if (has_all && checkpoint.weights.size() != parameters.size()) {
    return InvalidArgument("{} has {} parameters, but the model has {}", checkpoint.path,
                           checkpoint.weights.size(), parameters.size());
  }
  CopyState(checkpoint.weights, model.AllCopies());
  return {};
}

Status SetOptimizer(const Checkpoint& checkpoint, AdamW& optimizer) {
  const NamedState state = OptimizerState(optimizer);
  PENSTOCK_TRY_STATUS(CheckState(checkpoint, checkpoint.optimizer, state));
  CopyState(checkpoint.optimizer, state);
  optimizer.ResumeAfter(checkpoint.info.step);
  return {};
}

}  // namespace penstock
