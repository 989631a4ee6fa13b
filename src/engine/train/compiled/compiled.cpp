#include "train/compiled/compiled.h"

#include <torch/version.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/text/strict_json.h"
#include "config/replicas.h"
#include "graph/ir/parse.h"
#include "graph/ir/print.h"
#include "graph/kernel/fused_op.h"
#include "graph/ops/collective.h"
#include "train/checkpoint/safetensors.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "penstock stage program 3";

constexpr const char* kOverlapped = "overlapped";  // prefix of its constants

// Returns a constant's memory from its first to its last element, whatever its strides.
at::Tensor Flat(const at::Tensor& tensor) {
  return tensor.as_strided({ExtentOf(TypeOf(tensor))}, {1}, tensor.storage_offset());
}

// The graphs that use no slots and have no constants, by their names in the file.
template <class Program>
auto ShardGraphs(Program& program) {
  return std::array{std::pair{"unshard", &program.unshard},
                    std::pair{"reduce_grad", &program.reduce_grad}};
}

class Writer {
 public:
  // Constants are stored by value number after `prefix`, because `overlapped` has its own numbers.
  json ToJson(const StagePiece& piece, const std::string& prefix = "") {
    for (const Bound& bound : piece.graph.bound) {
      if (bound.kind != BoundKind::kConstant) continue;
      content.tensors[fmt::format("{}%{}", prefix, bound.value)] = Flat(bound.tensor);
      if (bound.tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
        numbers[prefix].push_back(bound.value);
      }
    }
    return {{"graph", PrintGraph(piece.graph)},
            {"inputs", piece.inputs},
            {"last", piece.last},
            {"outputs", piece.outputs}};
  }

  Safetensors content;
  // By prefix: constants that type promotion treats as numbers.
  std::map<std::string, std::vector<ValueId>> numbers;
};

class CompiledReader {
 public:
  explicit CompiledReader(const Safetensors& content) : content_(content) {}

  // The types of constants are in the text, and their values are tensors of the file.
  Result<StagePiece> ToPiece(const json& entry, const json& all_numbers,
                             const std::string& prefix = "") {
    const auto text = entry.at("graph").get<std::string>();
    const auto numbers = all_numbers.value(prefix, std::vector<ValueId>());
    std::map<ValueId, at::Tensor> flat;
    for (const auto& [name, tensor] : content_.tensors) {
      if (!name.starts_with(prefix + "%")) continue;
      flat[static_cast<ValueId>(std::stoi(name.substr(prefix.size() + 1)))] = tensor;
    }
    StagePiece piece;
    PENSTOCK_TRY(piece.graph, ParseGraph(text, flat));
    for (Bound& bound : piece.graph.bound) {
      if (bound.kind != BoundKind::kConstant) continue;
      const TensorType& type = piece.graph.value(bound.value).type;
      bound.tensor = bound.tensor.as_strided(type.sizes, type.strides);
      if (std::find(numbers.begin(), numbers.end(), bound.value) != numbers.end()) {
        bound.tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
      }
    }
    piece.inputs = entry.at("inputs").get<std::vector<int>>();
    piece.last = entry.at("last").get<std::vector<bool>>();
    piece.outputs = entry.at("outputs").get<std::vector<int>>();
    if (piece.inputs.size() != piece.graph.inputs.size() ||
        piece.last.size() != piece.inputs.size() ||
        piece.outputs.size() != piece.graph.outputs.size()) {
      return InvalidArgument("graph {} and its slots do not match", piece.graph.name);
    }
    return piece;
  }

 private:
  const Safetensors& content_;
};

json ToJson(const std::vector<StagePort>& ports) {
  json list = json::array();
  for (const StagePort& port : ports) {
    list.push_back({{"place", port.slot}, {"has_gradient", port.has_gradient}});
  }
  return list;
}

std::vector<StagePort> ToPorts(const json& list) {
  std::vector<StagePort> ports;
  for (const json& entry : list) {
    ports.push_back({{}, entry.at("has_gradient").get<bool>(), entry.at("place").get<int>()});
  }
  return ports;
}

// Checks the outputs of a piece: as many as there are ports, each a tensor.
Status CheckLeaving(const StagePiece& piece, std::size_t ports) {
  const auto& outputs = piece.graph.outputs;
  const std::size_t leaving = std::count(piece.outputs.begin(), piece.outputs.end(), -1);
  if (leaving != ports || std::find(outputs.begin(), outputs.end(), kNoValue) != outputs.end()) {
    return InvalidArgument("graph {} lacks an output", piece.graph.name);
  }
  return {};
}

Status CheckShardGraph(const Graph& graph) {
  if (graph.name.empty()) return {};
  if (!graph.inputs.empty() || std::ranges::count_if(graph.nodes, IsCollective) != 1) {
    return InvalidArgument("graph {} is not one collective of a shard", graph.name);
  }
  return {};
}

Status CheckSlots(const StageProgram& program) {
  std::vector<int> slots;
  for (const StagePort& port : program.inputs) {
    if (port.slot < 0) return InvalidArgument("an input has no slot");
    slots.push_back(port.slot);
  }
  for (const StagePort& port : program.outputs) slots.push_back(port.slot);
  for (const StagePiece* piece :
       {&program.forward, &program.backward_input, &program.backward_weight, &program.overlapped}) {
    slots.insert(slots.end(), piece->inputs.begin(), piece->inputs.end());
    slots.insert(slots.end(), piece->outputs.begin(), piece->outputs.end());
  }
  for (const int slot : slots) {
    if (slot < -1 || slot >= program.slots) return InvalidArgument("slot {} does not exist", slot);
  }
  const std::size_t gradients =
      std::count_if(program.inputs.begin(), program.inputs.end(),
                    [](const StagePort& input) { return input.has_gradient; });
  if (program.inputs.size() != program.forward.inputs.size()) {
    return InvalidArgument("the stage and its forward graph have different inputs");
  }
  if (program.outputs.empty()) return InvalidArgument("it has no output");
  PENSTOCK_TRY_STATUS(CheckLeaving(program.forward, program.outputs.size()));
  PENSTOCK_TRY_STATUS(CheckLeaving(program.backward_input, gradients));
  if (!program.overlapped.graph.name.empty()) {
    PENSTOCK_TRY_STATUS(CheckLeaving(program.overlapped, program.outputs.size() + gradients));
    if (program.overlapped.inputs.size() < program.forward.inputs.size() ||
        program.overlapped.outputs.size() != program.forward.outputs.size() + gradients) {
      return InvalidArgument("graph overlapped does not begin with the forward");
    }
  }
  return CheckLeaving(program.backward_weight, 0);
}

Result<StageProgram> Read(const Safetensors& content) {
  PENSTOCK_TRY(const json root, ParseStrictJson(content.metadata.at("program")));
  const json& numbers = root.at("numbers");
  CompiledReader reader(content);
  StageProgram program;
  PENSTOCK_TRY(program.forward, reader.ToPiece(root.at("forward"), numbers));
  PENSTOCK_TRY(program.backward_input, reader.ToPiece(root.at("backward_input"), numbers));
  PENSTOCK_TRY(program.backward_weight, reader.ToPiece(root.at("backward_weight"), numbers));
  if (root.contains("overlapped")) {
    PENSTOCK_TRY(program.overlapped, reader.ToPiece(root.at("overlapped"), numbers, kOverlapped));
  }
  for (const auto& [name, graph] : ShardGraphs(program)) {
    if (!root.contains(name)) continue;
    PENSTOCK_TRY(*graph, ParseGraph(root.at(name).get<std::string>()));
  }
  program.slots = root.at("held").get<int>();
  program.inputs = ToPorts(root.at("inputs"));
  program.outputs = ToPorts(root.at("outputs"));
  program.saved_bytes = root.at("saved_bytes").get<std::int64_t>();
  program.live_bytes = root.at("live_bytes").get<std::int64_t>();
  PENSTOCK_TRY_STATUS(CheckSlots(program));
  for (const auto& [name, graph] : ShardGraphs(program)) {
    PENSTOCK_TRY_STATUS(CheckShardGraph(*graph));
  }
  DescribePieces(program);
  return program;
}

// Loads the kernels that the program names. Compiled kernels are in this machine's cache; missing
// ones are compiled again.
Status LoadKernels(const StageProgram& program, const std::string& path) {
  const Status loaded = LoadKernelsOf({&program.forward.graph, &program.backward_input.graph,
                                       &program.backward_weight.graph, &program.overlapped.graph});
  if (loaded) return {};
  if (loaded.error().code != ErrorCode::kUnavailable) {
    return InvalidArgument("{} is damaged: {}", path, loaded.error().line());
  }
  return MakeError(
      ErrorCode::kUnavailable,
      "the fused kernels of {} are not in this machine's cache and cannot be compiled: "
      "{}: fix that, or run 'penstock compile' with fuse=false",
      path, loaded.error().line());
}

// Returns the places of a plane along its axes, but for the first ones.
std::vector<std::pair<std::string_view, int>> PlacesOf(const ParallelConfig& parallel, int plane) {
  const Mesh planes = Planes(parallel);
  std::vector<std::pair<std::string_view, int>> places = {
      {"context", planes.PlaceOf(plane, Axis::kContext)},
      {"tensor", planes.PlaceOf(plane, Axis::kTensor)}};
  std::erase_if(places, [](const auto& place) { return place.second == 0; });
  return places;
}

Status CheckKey(const Safetensors& content, const ProgramKey& key) {
  if (!content.metadata.contains("format") || content.metadata.at("format") != kFormat) {
    return InvalidArgument("it is not a compiled stage");
  }
  for (const auto& [name, value] : key) {
    const auto found = content.metadata.find(name);
    const std::string made = found == content.metadata.end() ? "none" : found->second;
    if (made != value) {
      return InvalidArgument("it was compiled with {} {}, this run has {}: run 'penstock compile'",
                             name, made, value);
    }
  }
  return {};
}

}  // namespace

ProgramKey KeyOfStage(const TrainConfig& config, int stage, int plane) {
  ProgramKey key = {{"stage", fmt::format("{}", stage)},
                    {"penstock", PENSTOCK_VERSION},
                    {"libtorch", TORCH_VERSION}};
  for (const ConfigKey& each : KeysOf(config)) {
    if (each.changes >= Changes::kPrograms) key.emplace_back(each.key, each.value);
  }
  for (const auto& [name, place] : PlacesOf(config.parallel, plane)) {
    key.emplace_back(fmt::format("{} rank", name), fmt::format("{}", place));
  }
  if (config.model.document_end >= 0) {
    key.emplace_back("the token that ends documents", fmt::format("{}", config.model.document_end));
  }
  return key;
}

std::string CompiledFile(const std::string& folder, int stage, const ParallelConfig& parallel,
                         int plane) {
  std::string part;
  for (const auto& [name, place] : PlacesOf(parallel, plane)) {
    part += fmt::format(".{}{}", name, place);
  }
  return (std::filesystem::path(folder) / fmt::format("stage{}{}.safetensors", stage, part))
      .string();
}

Status SaveStageProgram(const std::string& path, const StageProgram& program,
                        const ProgramKey& key) {
  Writer writer;
  json root = {{"forward", writer.ToJson(program.forward)},
               {"backward_input", writer.ToJson(program.backward_input)},
               {"backward_weight", writer.ToJson(program.backward_weight)},
               {"held", program.slots},
               {"inputs", ToJson(program.inputs)},
               {"outputs", ToJson(program.outputs)},
               {"saved_bytes", program.saved_bytes},
               {"live_bytes", program.live_bytes}};
  if (!program.overlapped.graph.name.empty()) {
    root["overlapped"] = writer.ToJson(program.overlapped, kOverlapped);
  }
  for (const auto& [name, graph] : ShardGraphs(program)) {
    if (!graph->name.empty()) root[name] = PrintGraph(*graph);
  }
  root["numbers"] = writer.numbers;
  for (const auto& [name, value] : key) writer.content.metadata[name] = value;
  writer.content.metadata["format"] = kFormat;
  writer.content.metadata["program"] = root.dump();
  return WriteSafetensors(path, writer.content);
}

Result<StageProgram> LoadStageProgram(const std::string& path, const ProgramKey& key) {
  const auto file = ReadSafetensors(path);
  if (!file && file.error().code == ErrorCode::kNotFound) {
    return NotFound("no compiled stage: {}: write it with 'penstock compile CONFIG -o {}'",
                    file.error().line(), std::filesystem::path(path).parent_path().string());
  }
  PENSTOCK_TRY(const Safetensors content, file);
  if (const Status status = CheckKey(content, key); !status) {
    return InvalidArgument("{}: {}", path, status.error().line());
  }
  Result<StageProgram> program = InvalidArgument("");
  try {
    program = Read(content);
  } catch (const std::exception& error) {  // from json, std::stoi and torch
    program = InvalidArgument("{}", error.what());
  }
  if (!program) {
    return InvalidArgument("{} is damaged: {}: run 'penstock compile'", path,
                           program.error().line());
  }
  PENSTOCK_TRY_STATUS(LoadKernels(*program, path));
  return program;
}

}  // namespace penstock
