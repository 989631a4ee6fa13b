#include "bindings/engine/pipeline.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <iterator>
#include <mutex>

#include "base/index.h"
#include "base/system/allocator.h"
#include "graph/device/device_queue.h"
#include "graph/ir/print.h"
#include "runtime/measure/measure.h"
#include "train/stage/stage_options.h"
#include "train/stage/stage_spec.h"

namespace penstock::python {
namespace {

void Require(const Status& status) {
  if (!status) throw std::runtime_error(status.error().line());
}
template <class T>
T ValueOf(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().line());
  return *std::move(result);
}

bool SameTensors(const TensorsByName& named, const Tensors& tensors) {
  return std::ranges::equal(named, tensors, [](const auto& one, const at::Tensor& other) {
    return one.second.is_same(other);
  });
}

// Returns a part of a tensor of the whole batch. `index` counts the slices of all microbatches. If
// microbatches do not divide the batch, the first ones have one sample more.
at::Tensor PartOf(const at::Tensor& whole, int index, int microbatches, int slices) {
  if (whole.dim() == 0) return whole.detach();
  const auto part = [](const at::Tensor& of, int dim, std::int64_t number, std::int64_t count) {
    const std::int64_t size = of.size(dim) / count, larger = of.size(dim) % count;
    return of.narrow(dim, number * size + std::min(number, larger), size + (number < larger));
  };
  const at::Tensor microbatch = part(whole, 0, index / slices, microbatches);
  return slices == 1 ? microbatch : part(microbatch, 1, index % slices, slices);
}

// The caller's stream reads tensors that a rank's stream has allocated, and may free them then.
void ReadHere(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.is_cpu()) continue;
    const c10::impl::VirtualGuardImpl impl(tensor.device().type());
    KeepUntilRead({&tensor, 1}, impl.getStream(tensor.device()));
  }
}

// Ranks wait for what was started on the default stream. The caller may use another one.
void AwaitCaller(c10::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl impl(device.type());
  const c10::Stream stream = impl.getStream(device);
  if (stream != impl.getDefaultStream(device)) stream.synchronize();
}

}  // namespace

std::shared_ptr<PythonStage> StageSource::ModuleOf(StageFunctions functions) const {
  return std::make_shared<PythonStage>(std::move(functions), parameters, state);
}

TensorKind::TensorKind(const at::Tensor& tensor)
    : sizes(tensor.sizes().vec()),
      dtype(tensor.scalar_type()),
      device(tensor.device()),
      layout(tensor.layout()),
      is_inference(tensor.is_inference()),
      requires_grad(tensor.requires_grad()) {}

bool TensorKind::Fits(const at::Tensor& tensor) const {
  return tensor.sizes().equals(sizes) && tensor.scalar_type() == dtype &&
         tensor.device() == device && tensor.layout() == layout &&
         tensor.is_inference() == is_inference && tensor.requires_grad() == requires_grad;
}

Autocast Autocast::OfThread(c10::Device device) {
  return {at::autocast::is_autocast_enabled(device.type()),
          at::autocast::get_autocast_dtype(device.type())};
}

PipelineOptions::PipelineOptions() {
  static std::mutex capture;
  stage.random.exclusive_capture = &capture;  // torch's checkpoints set its generator's state
  stage.compile.fuse = stage.compile.fingerprints = true;
}

EnginePipeline::EnginePipeline(Schedule schedule, PipelineOptions options,
                               std::shared_ptr<ProcessGroup> processes, const LocalRanks& ranks)
    : schedule_(std::move(schedule)),
      options_(std::move(options)),
      processes_(std::move(processes)),
      collectives_(processes_.get()),
      ranks_(ranks),
      assembly_(ValueOf(StageAssembly::Make(schedule_, options_.parallel, options_.offload_folder,
                                            ranks_, processes_.get(), options_.devices))),
      stages_(Index(schedule_.stages())),
      sources_(stages_.size()),
      programs_(Index(schedule_.placement.chain_length())),
      after_step_(Index(schedule_.ranks())),
      step_(options_.first_step) {
  KeepFreedMemory();
}

c10::Device EnginePipeline::DeviceOf(int stage) const {
  return options_.devices.by_rank[Index(schedule_.placement.rank_of(stage))];
}

void EnginePipeline::SetShared(std::vector<std::vector<int>> stages) {
  schedule_.shared = std::move(stages);
}

TorchStageOptions EnginePipeline::OptionsOf(int stage, const StageParts& parts) const {
  TorchStageOptions options =
      ValueOf(ScheduledOptions(schedule_, options_.parallel, stage, options_.stage));
  assembly_.Join(stage, options);
  options.gradients.shared = parts.shared;
  return options;
}

Tensors EnginePipeline::CaptureModule(int stage, const std::shared_ptr<PythonStage>& module,
                                      const StageExamples& examples,
                                      const TorchStageOptions& options) {
  const auto programs =
      captures_.Of(schedule_.placement.model_stage(stage), module, examples, options);
  if (options.schedule.last) return {};
  const std::span<const StagePort> outputs = programs.front().outputs;
  // With slices, a stage returns one tensor, and its keys and values follow.
  return ExamplesOf(options.lengths.slices() > 1 ? outputs.first(1) : outputs, DeviceOf(stage));
}

Tensors EnginePipeline::Capture(int stage, const StageParts& parts) {
  const auto module = std::make_shared<PythonStage>(parts.functions, parts.parameters, parts.state);
  const nb::gil_scoped_release no_gil;
  return CaptureModule(stage, module, {parts.inputs, parts.targets}, OptionsOf(stage, parts));
}

Tensors EnginePipeline::CaptureShape(int stage, StageFunctions functions, Tensors inputs,
                                     Tensors targets) {
  const StageSource& source = sources_[Index(stage)];
  const std::shared_ptr<PythonStage> module = source.ModuleOf(std::move(functions));
  const nb::gil_scoped_release no_gil;
  return CaptureModule(stage, module, {std::move(inputs), std::move(targets)}, source.options);
}

std::optional<CaptureDifference> EnginePipeline::FindDifference(int model_stage) const {
  const auto of_shape = built_.find(Index(model_stage));
  const std::span<const StageProgram> built =
      of_shape != built_.end() ? std::span(&of_shape->second, 1)
                               : std::span<const StageProgram>(*programs_.at(Index(model_stage)));
  return FirstDifference(captures_.at(model_stage), built);
}

bool EnginePipeline::IsLike(const EnginePipeline& other) const {
  return std::ranges::equal(programs_, other.programs_, [](const auto& one, const auto& two) {
    if (!one || !two) return one == two;
    return one->size() == two->size() && !FirstDifference(*one, *two);
  });
}

Tensors EnginePipeline::Build(int stage, StageParts parts) {
  const std::size_t model_stage = Index(schedule_.placement.model_stage(stage));
  const auto module =
      std::make_shared<PythonStage>(std::move(parts.functions), parts.parameters, parts.state);
  const nb::gil_scoped_release no_gil;
  const auto with_tensors = [&](const Tensors& tensors) {
    TensorsByName named = parts.parameters;
    for (std::size_t i = 0; i < named.size(); ++i) named[i].second = tensors.at(i);
    return std::make_shared<PythonStage>(StageFunctions(), named, TensorsByName());
  };
  const std::shared_ptr<PythonStage> weights =
      SameTensors(parts.parameters, parts.masters) ? module : with_tensors(parts.masters);
  TorchStageOptions options = OptionsOf(stage, parts);
  if (!parts.working.empty()) options.working = with_tensors(parts.working);
  options.programs = programs_[model_stage];
  const StageExamples examples{parts.inputs, parts.targets};
  if (options.programs == nullptr) {
    options.programs = std::make_shared<const std::vector<StageProgram>>(
        ValueOf(CompileSlices(module, examples, options)));
    programs_[model_stage] = options.programs;
  }
  CheckBuffers(stage, options.programs->front());
  sources_[Index(stage)] = {parts.parameters, parts.state, options};
  BatchSource source;
  const auto parts_of = [this](Tensors Batch::*tensors) {
    return [this, tensors](std::int64_t step, int index, std::span<at::Tensor> to) {
      const at::NoGradGuard no_gradients;
      const Batch& batch = batches_[Index(step - step_)];
      std::ranges::transform(batch.*tensors, to.begin(), [&](const at::Tensor& whole) {
        return PartOf(whole, index, schedule_.microbatches, schedule_.slices);
      });
    };
  };
  source.all_inputs = parts_of(&Batch::first);
  source.all_targets = parts_of(&Batch::second);
  if (options.schedule.last) {
    source.take_reports = [this](std::int64_t step, int index, std::span<at::Tensor> reports) {
      if (!IsLastOfRun(step)) return;
      reports_[Index(index)].assign(std::make_move_iterator(reports.begin()),
                                    std::make_move_iterator(reports.end()));
    };
  }
  source.shape = [this](std::int64_t step, int index) {
    const std::vector<std::int64_t>& shapes = shapes_[Index(step - step_)];
    return shapes.size() == 1 ? shapes.front() : shapes[Index(index)];
  };
  if (parts.after_step) {
    after_step_[Index(schedule_.placement.rank_of(stage))].push_back(std::move(parts.after_step));
  }
  stages_[Index(stage)] =
      ValueOf(TorchStage::Make(weights, examples, source, options, std::move(parts.update)));
  return stages_[Index(stage)]->ExampleOutputs();
}

std::vector<std::tuple<std::string, at::Tensor, std::int64_t>> EnginePipeline::Updated(
    int stage) const {
  std::vector<std::tuple<std::string, at::Tensor, std::int64_t>> updated;
  for (const NamedParameter& each : stages_.at(Index(stage))->Parameters()) {
    updated.emplace_back(each.name, each.value, each.layout.begin());
  }
  return updated;
}

void EnginePipeline::CheckBuffers(int stage, const StageProgram& program) const {
  if (schedule_.placement.replicas() == 1 || program.updated_buffers.empty()) return;
  throw std::runtime_error(fmt::format(
      "stage {} updates buffers (running statistics), which the {} replicas of the model cannot "
      "share: choose a schedule that is not bidirectional, without data_parallel",
      schedule_.placement.model_stage(stage), schedule_.placement.replicas()));
}

Tensors EnginePipeline::BuildShape(int stage, StageFunctions functions, Tensors inputs,
                                   Tensors targets) {
  const StageSource& source = sources_[Index(stage)];
  const std::shared_ptr<PythonStage> module = source.ModuleOf(std::move(functions));
  const nb::gil_scoped_release no_gil;
  const std::size_t model_stage = Index(schedule_.placement.model_stage(stage));
  auto found = built_.find(model_stage);
  if (found == built_.end()) {
    TorchStageOptions options = source.options;
    options.programs = nullptr;
    const StageExamples examples{std::move(inputs), std::move(targets)};
    StageProgram program = ValueOf(CompileSlices(module, examples, options)).front();
    CheckBuffers(stage, program);
    found = built_.emplace(model_stage, std::move(program)).first;
  }
  return source.options.schedule.last ? Tensors()
                                      : ExamplesOf(found->second.outputs, DeviceOf(stage));
}

void EnginePipeline::AddShape(std::int64_t shape) {
  const nb::gil_scoped_release no_gil;
  for (int stage = 0; stage < schedule_.stages(); ++stage) {
    const auto found = built_.find(Index(schedule_.placement.model_stage(stage)));
    if (!stages_[Index(stage)]) continue;
    PENSTOCK_CHECK(found != built_.end(), "stage {} is not compiled for shape {}", stage, shape);
    stages_[Index(stage)]->AddShape(shape, found->second);
  }
  built_.clear();
}

void EnginePipeline::DropShape(std::int64_t shape) {
  const nb::gil_scoped_release no_gil;
  for (const auto& stage : stages_) {
    if (stage) stage->DropShape(shape);
  }
}

EnginePipeline::~EnginePipeline() {
  // A forked process has no threads that could end.
  if (process_ != getpid()) static_cast<void>(session_.release());
  const nb::gil_scoped_release no_gil;
  session_.reset();
}

Status EnginePipeline::Start() {
  if (session_ && process_ == getpid()) return {};
  static_cast<void>(session_.release());  // its threads belong to the process that was forked
  static_cast<void>(trace_.release());
  std::vector<Stage*> stages;
  for (const auto& stage : stages_) stages.push_back(stage.get());
  PENSTOCK_TRY(Trace trace, Trace::Make(schedule_, 1, ranks_.here()));
  trace_ = std::make_unique<Trace>(std::move(trace));
  RunOptions run;
  run.first_step = step_;
  run.watchdog = std::chrono::milliseconds(static_cast<std::int64_t>(options_.watchdog * 1e3));
  // After a fork, the first call renews a thread pool of torch, which threads may not do at once.
  const auto mutex = std::make_shared<std::mutex>();
  run.on_thread_start = [mutex, threads = options_.threads](int) {
    const std::lock_guard lock(*mutex);
    at::set_num_threads(threads);
  };
  run.on_step = [this](int rank, std::int64_t step) { AfterStep(rank, step); };
  run.on_verdict = [this](std::int64_t step, const Verdict& verdict) {
    if (IsLastOfRun(step)) last_norm_ = verdict.norm;
  };
  run.update = options_.update;
  run.update.zero = assembly_.zero();
  run.update.nonfinite_remedy = "lower the learning rate, or pass skip_nonfinite=True";
  run.trace = trace_.get();
  run.ranks = &ranks_;
  run.group = processes_.get();
  session_ = std::make_unique<RunSession>(schedule_, std::move(stages), std::move(run));
  process_ = getpid();
  return {};
}

void EnginePipeline::AfterStep(int rank, std::int64_t step) {
  for (const auto& after_step : after_step_[Index(rank)]) after_step();
  const int last = schedule_.stages() - 1;
  if (rank == schedule_.placement.rank_of(last)) {
    losses_[Index(step - step_)] = stages_[Index(last)]->StepLoss();
    if (IsLastOfRun(step)) last_losses_ = stages_[Index(last)]->MicrobatchLosses();
  }
}

bool EnginePipeline::FitsLast(const nb::object& inputs, const nb::object& targets) const {
  if (c10::InferenceMode::is_enabled() || Autocast::OfThread(DeviceOf(0)) != last_autocast_)
    return false;
  std::size_t kinds = 0;
  for (const nb::object* given : {&inputs, &targets}) {
    if (given->is_none()) continue;
    if (kinds == last_kinds_.size() || !THPVariable_CheckExact(given->ptr()) ||
        !last_kinds_[kinds].Fits(THPVariable_Unpack(given->ptr()))) {
      return false;
    }
    ++kinds;
  }
  return kinds == last_kinds_.size();
}

bool EnginePipeline::AllFitLast(const std::vector<Batch>& batches) const {
  return std::ranges::all_of(batches, [&](const Batch& batch) {
    auto kind = last_kinds_.begin();
    const auto fits = [&](const at::Tensor& tensor) {
      return kind != last_kinds_.end() && (kind++)->Fits(tensor);
    };
    return std::ranges::all_of(batch.first, fits) && std::ranges::all_of(batch.second, fits) &&
           kind == last_kinds_.end();
  });
}

bool EnginePipeline::IsLikeLast(const nb::object& inputs, const nb::object& targets) const {
  return FitsLast(inputs, targets) &&
         std::ranges::all_of(watches_, [](const auto& watch) { return watch->IsUnchanged(); });
}

void EnginePipeline::Gather() {
  const nb::gil_scoped_release no_gil;
  for (const auto& stage : stages_) {
    if (stage) stage->StartGather();
  }
  for (const auto& stage : stages_) {
    if (stage) stage->FinishGather(/*keep=*/true);
  }
}

void EnginePipeline::DropGathered() {
  for (const auto& stage : stages_) {
    if (stage) stage->DropGathered();
  }
}

void EnginePipeline::SetWeights(int stage, const Tensors& whole) {
  const nb::gil_scoped_release no_gil;
  stages_.at(Index(stage))->SetWeights(whole);
}

void EnginePipeline::ReadWeights() {
  const nb::gil_scoped_release no_gil;
  for (const auto& stage : stages_) {
    if (stage) stage->ReadWeights();
  }
}

void EnginePipeline::SetSteps(std::int64_t steps) {
  const nb::gil_scoped_release no_gil;
  session_.reset();  // whose ranks count steps
  for (const auto& stage : stages_) {
    if (stage) stage->Restart();
  }
  step_ = steps;
}

std::vector<double> EnginePipeline::Run(std::vector<Batch> batches,
                                        std::vector<std::vector<std::int64_t>> shapes) {
  if (failure_) {
    throw std::runtime_error("an earlier step failed: make a new Pipeline (" + *failure_ + ")");
  }
  if (batches.empty()) return {};
  batches_ = std::move(batches);
  shapes_ = std::move(shapes);
  Remember(batches_.back());
  losses_.assign(batches_.size(), 0);
  reports_.assign(Index(schedule_.microbatches * schedule_.slices), {});
  bool interrupted = false;
  Status status;
  {
    const nb::gil_scoped_release no_gil;
    for (const int rank : ranks_.here()) AwaitCaller(options_.devices.by_rank[Index(rank)]);
    status = Start();
    if (status) session_->Begin(std::ssize(batches_));
  }
  if (status) {
    const nb::gil_scoped_release no_gil;
    status = session_->End([&interrupted] {
      const nb::gil_scoped_acquire gil;
      return interrupted = PyErr_CheckSignals() != 0;
    });
    if (!status) session_.reset();
  }
  if (!status && !interrupted && ForgetStep()) Require(status);
  step_ += std::ssize(batches_);
  batches_.clear();
  if (!status) failure_ = status.error().line();
  if (interrupted) {
    failure_ = "interrupted";
    throw nb::python_error();
  }
  Require(status);
  const nb::gil_scoped_release no_gil;
  return ValueOf(FromLastStage());
}

bool EnginePipeline::ForgetStep() {
  // A failure also ends the groups of replicas.
  if (collectives_.processes() > 1 || batches_.size() > 1 || assembly_.zero() > 0) return false;
  const nb::gil_scoped_release no_gil;
  bool forgotten = true;
  for (const auto& stage : stages_) forgotten = stage->ForgetStep(step_) && forgotten;
  if (forgotten) batches_.clear();
  return forgotten;
}

void EnginePipeline::Remember(const Batch& batch) {
  last_autocast_ = Autocast::OfThread(DeviceOf(0));
  last_kinds_.clear();
  for (const Tensors* tensors : {&batch.first, &batch.second}) {
    for (const at::Tensor& tensor : *tensors) last_kinds_.emplace_back(tensor);
  }
}

// Every process with a last stage sends the losses of the steps, then the figures. Of a value that
// it does not have, it sends NaN.
Result<std::vector<double>> EnginePipeline::FromLastStage() {
  figures_ = OwnFigures();
  if (collectives_.processes() == 1) return losses_;
  std::vector<double> values = losses_;
  if (!stages_.back()) std::ranges::fill(values, std::nan(""));
  const std::size_t steps = losses_.size();
  values.insert(values.end(), figures_.begin(), figures_.end());
  std::string own(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  if (figures_.empty()) own.clear();
  PENSTOCK_TRY(const std::vector<std::string> all, collectives_.AllGather(std::move(own)));
  values.clear();
  for (const std::string& one : all) {
    if (one.empty()) continue;
    std::vector<double> theirs(one.size() / sizeof(double));
    std::memcpy(theirs.data(), one.data(), one.size());
    values.resize(theirs.size(), std::nan(""));
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      if (!std::isnan(theirs[i])) values[i] = theirs[i];
    }
  }
  PENSTOCK_CHECK(values.size() >= steps, "no process has sent the losses of the last stage");
  const auto end_of_losses = values.begin() + static_cast<std::ptrdiff_t>(steps);
  losses_.assign(values.begin(), end_of_losses);
  figures_.assign(end_of_losses, values.end());
  return losses_;
}

std::vector<double> EnginePipeline::OwnFigures() const {
  const Placement& placement = schedule_.placement;
  const bool has_last = std::ranges::any_of(stages_, [&](const auto& stage) {
    return stage && placement.next(static_cast<int>(&stage - stages_.data())) < 0;
  });
  if (!has_last) return {};
  const std::size_t microbatches = reports_.size();
  std::vector<double> figures(1 + microbatches * Index(1 + metrics_), std::nan(""));
  if (stages_.back()) {
    figures[0] = last_norm_;
    std::ranges::copy(last_losses_, figures.begin() + 1);
  }
  for (std::size_t index = 0; index < microbatches; ++index) {
    for (std::size_t metric = 0; metric < std::min(Index(metrics_), reports_[index].size());
         ++metric) {
      figures[1 + microbatches + index * Index(metrics_) + metric] =
          reports_[index][metric].item<float>();
    }
  }
  return figures;
}

std::vector<Tensors> EnginePipeline::LastOutputs() const {
  std::vector<Tensors> outputs;
  for (const Tensors& reports : reports_) {
    ReadHere(reports);
    outputs.emplace_back(reports.begin() + std::min(std::ssize(reports), std::ptrdiff_t{metrics_}),
                         reports.end());
  }
  return outputs;
}

std::vector<RankTimes> EnginePipeline::Times() const {
  std::vector<RankTimes> times;
  if (trace_ == nullptr || trace_->last_round() == 0) return times;
  const Timeline timeline = MeasuredTimeline(*trace_, trace_->last_round() - 1);
  for (const int rank : ranks_.here()) {
    RankTimes& of = times.emplace_back(RankTimes{rank, {}, {}});
    for (const Span& span : timeline.spans[Index(rank)]) {
      of.starts.push_back(span.start);
      of.ends.push_back(span.end);
    }
  }
  return times;
}

std::string EnginePipeline::GraphText(int model_stage) const {
  const auto& programs = programs_.at(Index(model_stage));
  if (programs == nullptr) return "";
  const StageProgram& program = programs->front();
  std::string text;
  for (const StagePiece* piece :
       {&program.forward, &program.backward_input, &program.backward_weight}) {
    text += PrintGraph(piece->graph);
  }
  return text;
}

std::vector<std::int64_t> EnginePipeline::SavedBytes() const {
  std::vector<std::int64_t> bytes;
  for (const auto& stage : stages_) bytes.push_back(stage ? stage->SavedBytes() : 0);
  return bytes;
}

}  // namespace penstock::python
