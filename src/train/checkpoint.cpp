#include "train/checkpoint.h"

#include <filesystem>
#include <map>

#include "train/safetensors.h"

namespace penstock {
namespace {

struct Content {
  std::map<std::string, at::Tensor> tensors;
  CheckpointInfo info;
};

std::string FileOf(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return path;
  return (std::filesystem::path(path) / "model.safetensors").string();
}

Status ReadInfo(const Safetensors& file, CheckpointInfo& info) {
  const auto step = file.metadata.find("step");
  const auto config = file.metadata.find("config");
  if (step == file.metadata.end() || config == file.metadata.end()) {
    return InvalidArgument("its step or its configuration is missing");
  }
  try {
    info.step = std::stoll(step->second);
  } catch (const std::exception&) {
    return InvalidArgument("step '{}' is no number", step->second);
  }
  PENSTOCK_TRY(info.config, ParseTrainConfig(config->second, "its configuration"));
  return {};
}

Result<Content> ReadContent(const std::string& path) {
  const std::string file = FileOf(path);
  PENSTOCK_TRY(Safetensors stored, ReadSafetensors(file));
  Content content{std::move(stored.tensors), {}};
  Status status = ReadInfo(stored, content.info);
  for (const auto& [name, tensor] : content.tensors) {
    if (tensor.scalar_type() != at::kFloat) {
      status = InvalidArgument("tensor '{}': F32 is expected", name);
    }
  }
  if (!status) {
    return InvalidArgument("{} is not a checkpoint of a run: {}", file, status.error().message);
  }
  return content;
}

}  // namespace

Status SaveCheckpoint(const LanguageModel& model, const CheckpointInfo& info,
                      const std::string& path) {
  Safetensors content;
  content.metadata = {
      {"format", "pt"}, {"step", std::to_string(info.step)}, {"config", ToYaml(info.config)}};
  for (const auto& [name, parameter] : model.Parameters()) content.tensors[name] = parameter;
  return WriteSafetensors(path, content);
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
    if (parameter.sizes() != found->second.sizes()) {
      return InvalidArgument("{}: parameter '{}' is [{}], not [{}]", path, name,
                             fmt::join(found->second.sizes().vec(), ", "),
                             fmt::join(parameter.sizes().vec(), ", "));
    }
  }
  if (content.tensors.size() != parameters.size()) {
    return InvalidArgument("{} holds {} parameters, the model has {}", path, content.tensors.size(),
                           parameters.size());
  }
  for (const auto& [name, parameter] : parameters) parameter.copy_(content.tensors.at(name));
  return {};
}

}  // namespace penstock
