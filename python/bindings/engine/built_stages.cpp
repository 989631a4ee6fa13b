#include "bindings/engine/built_stages.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/index.h"
#include "bindings/engine/throw_errors.h"
#include "graph/count_collectives.h"
#include "graph/ir/print.h"
#include "graph/ops/c10d_groups.h"
#include "train/stage/stage_options.h"
#include "train/stage/stage_spec.h"

namespace penstock::python {
namespace {

bool SameTensors(const TensorsByName& named, const Tensors& tensors) {
  return std::ranges::equal(named, tensors, [](const auto& one, const at::Tensor& other) {
    return one.second.is_same(other);
  });
}

}  // namespace

BuiltStages::BuiltStages(const Schedule& schedule, const ParallelConfig& parallel,
                         TorchStageOptions common, std::vector<c10::Device> devices,
                         StageBuilder builder)
    : schedule_(schedule),
      parallel_(parallel),
      common_(std::move(common)),
      devices_(std::move(devices)),
      builder_(std::move(builder)),
      stages_(Index(schedule.stages())),
      sources_(stages_.size()) {}

std::shared_ptr<PythonStage> BuiltStages::Source::ModuleOf(StageFunctions functions) const {
  return std::make_shared<PythonStage>(std::move(functions), parameters, state);
}

std::vector<Stage*> BuiltStages::pointers() const {
  std::vector<Stage*> pointers;
  for (const auto& stage : stages_) pointers.push_back(stage.get());
  return pointers;
}

TorchStageOptions BuiltStages::OptionsOf(int stage, const StageParts& parts) const {
  TorchStageOptions options = ValueOrThrow(ScheduledOptions(schedule_, parallel_, stage, common_));
  builder_.Join(stage, options);
  options.gradients.shared = parts.shared;
  options.gradients.counts_all = true;
  options.gradients.planes = parts.planes;
  return options;
}

Tensors BuiltStages::CaptureModule(int stage, const std::shared_ptr<PythonStage>& module,
                                   const StageExamples& examples,
                                   const TorchStageOptions& options) {
  const auto programs = captures_.Of(ModelStage(stage), module, examples, options);
  if (options.schedule.last) return {};
  const std::span<const StagePort> outputs = programs.front().outputs;
  // With slices, a stage returns one tensor, and its keys and values follow.
  return ExamplesOf(options.lengths.slices() > 1 ? outputs.first(1) : outputs, DeviceOf(stage));
}

Tensors BuiltStages::Capture(int stage, const StageParts& parts) {
  const auto module = std::make_shared<PythonStage>(parts.functions, parts.parameters, parts.state);
  const nb::gil_scoped_release no_gil;
  return CaptureModule(stage, module, {parts.inputs, parts.targets}, OptionsOf(stage, parts));
}

Tensors BuiltStages::CaptureShape(int stage, StageFunctions functions, Tensors inputs,
                                  Tensors targets) {
  const Source& source = sources_[Index(stage)];
  const std::shared_ptr<PythonStage> module = source.ModuleOf(std::move(functions));
  const nb::gil_scoped_release no_gil;
  return CaptureModule(stage, module, {std::move(inputs), std::move(targets)}, source.options);
}

std::optional<CaptureDifference> BuiltStages::FindDifference(int model_stage,
                                                             std::int64_t shape) const {
  if (shape > 0) {
    const StageProgram& captured = captures_.at(model_stage).front();
    return penstock::FirstDifference(captured.captured, added_.at(shape).at(model_stage));
  }
  const auto of_shape = built_.find(model_stage);
  const StageBuilder::Programs programs = builder_.ProgramsOf(model_stage);
  const std::span<const StageProgram> built = of_shape != built_.end()
                                                  ? std::span(&of_shape->second, 1)
                                                  : std::span<const StageProgram>(*programs);
  return FirstDifference(captures_.at(model_stage), built);
}

bool BuiltStages::AreLike(const BuiltStages& other) const {
  for (int stage = 0; stage < schedule_.placement.chain_length(); ++stage) {
    const StageBuilder::Programs own = builder_.ProgramsOf(stage);
    const StageBuilder::Programs theirs = other.builder_.ProgramsOf(stage);
    if (!own && !theirs) continue;
    if (!own || !theirs || own->size() != theirs->size() || FirstDifference(*own, *theirs))
      return false;
  }
  return schedule_.placement.chain_length() == other.schedule_.placement.chain_length();
}

Tensors BuiltStages::Build(int stage, StageParts parts, BatchSource source) {
  const auto module =
      std::make_shared<PythonStage>(std::move(parts.functions), parts.parameters, parts.state);
  const nb::gil_scoped_release no_gil;
  const auto with_tensors = [&](const Tensors& tensors) {
    TensorsByName named = parts.parameters;
    for (std::size_t i = 0; i < named.size(); ++i) named[i].second = tensors.at(i);
    return std::make_shared<PythonStage>(StageFunctions(), named, TensorsByName());
  };
  StageToBuild made{module, module, {parts.inputs, parts.targets}, OptionsOf(stage, parts)};
  if (!SameTensors(parts.parameters, parts.masters)) made.trained = with_tensors(parts.masters);
  if (!parts.working.empty()) made.options.working = with_tensors(parts.working);
  ThrowIfFailed(builder_.SetPrograms(ModelStage(stage), made));
  CheckBuffers(stage, made.options.programs->front());
  sources_[Index(stage)] = {parts.parameters, parts.state, made.options};
  stages_[Index(stage)] =
      ValueOrThrow(StageBuilder::Build(made, std::move(source), std::move(parts.update)));
  return stages_[Index(stage)]->ExampleOutputs();
}

std::vector<std::tuple<std::string, at::Tensor, std::int64_t>> BuiltStages::Updated(
    int stage) const {
  std::vector<std::tuple<std::string, at::Tensor, std::int64_t>> updated;
  for (const NamedParameter& each : stages_.at(Index(stage))->Parameters()) {
    updated.emplace_back(each.name, each.value, each.layout.begin());
  }
  return updated;
}

void BuiltStages::CheckBuffers(int stage, const StageProgram& program) const {
  if (schedule_.placement.replicas() == 1 || program.updated_buffers.empty()) return;
  throw std::runtime_error(fmt::format(
      "stage {} updates buffers (running statistics), which the {} replicas of the model cannot "
      "share: choose a schedule that is not bidirectional, without data_parallel",
      ModelStage(stage), schedule_.placement.replicas()));
}

Tensors BuiltStages::BuildShape(int stage, StageFunctions functions, Tensors inputs,
                                Tensors targets) {
  const Source& source = sources_[Index(stage)];
  const std::shared_ptr<PythonStage> module = source.ModuleOf(std::move(functions));
  const nb::gil_scoped_release no_gil;
  auto found = built_.find(ModelStage(stage));
  if (found == built_.end()) {
    TorchStageOptions options = source.options;
    options.programs = nullptr;
    const StageExamples examples{std::move(inputs), std::move(targets)};
    StageProgram program = ValueOrThrow(CompileSlices(module, examples, options)).front();
    CheckBuffers(stage, program);
    found = built_.emplace(ModelStage(stage), std::move(program)).first;
  }
  return source.options.schedule.last ? Tensors()
                                      : ExamplesOf(found->second.outputs, DeviceOf(stage));
}

void BuiltStages::AddShape(std::int64_t shape) {
  const nb::gil_scoped_release no_gil;
  for (int stage = 0; stage < schedule_.stages(); ++stage) {
    const auto found = built_.find(ModelStage(stage));
    if (!stages_[Index(stage)]) continue;
    PENSTOCK_CHECK(found != built_.end(), "stage {} is not compiled for shape {}", stage, shape);
    stages_[Index(stage)]->AddShape(shape, found->second);
    added_[shape].insert_or_assign(ModelStage(stage), found->second.captured);
  }
  built_.clear();
}

void BuiltStages::DropShape(std::int64_t shape) {
  const nb::gil_scoped_release no_gil;
  ForEach([shape](TorchStage& stage) { stage.DropShape(shape); });
  added_.erase(shape);
}

std::string BuiltStages::GraphText(int model_stage) const {
  const StageBuilder::Programs programs = builder_.ProgramsOf(model_stage);
  if (programs == nullptr) return "";
  const StageProgram& program = programs->front();
  std::string text;
  for (const StagePiece* piece :
       {&program.forward, &program.backward_input, &program.backward_weight}) {
    text += PrintGraph(piece->graph);
  }
  return text;
}

std::vector<BuiltStages::CountedCalls> BuiltStages::CountCollectives(int model_stage) const {
  const StageBuilder::Programs programs = builder_.ProgramsOf(model_stage);
  if (programs == nullptr) return {};
  const CollectivesOfStage counts = penstock::CountCollectives(programs->front());
  std::vector<CountedCalls> all;
  for (const auto* of : {&counts.forward, &counts.backward_input, &counts.backward_weight}) {
    CountedCalls& calls = all.emplace_back();
    for (const CollectiveCount& each : *of) {
      calls.emplace_back(each.op, NameOfC10dGroup(each.group), each.calls, each.bytes);
    }
  }
  return all;
}

}  // namespace penstock::python
