#include "bindings/engine/pipeline.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "base/index.h"
#include "base/system/allocator.h"
#include "bindings/engine/throw_errors.h"

namespace penstock::python {
namespace {

// Ranks wait for what was started on the default stream. The caller may use another one.
void AwaitCaller(c10::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl impl(device.type());
  const c10::Stream stream = impl.getStream(device);
  if (stream != impl.getDefaultStream(device)) stream.synchronize();
}

PipelineOptions WithCollectives(PipelineOptions options, const MeshRun* mesh) {
  if (mesh != nullptr) options.stage.rank.c10d = mesh->collectives();
  return options;
}

}  // namespace

PipelineOptions::PipelineOptions() {
  static std::mutex capture;
  stage.random.exclusive_capture = &capture;  // torch's checkpoints set its generator's state
  stage.compile.fuse = stage.compile.fingerprints = true;
}

EnginePipeline::EnginePipeline(Schedule schedule, PipelineOptions options,
                               std::shared_ptr<ProcessGroup> processes, const LocalRanks& ranks,
                               std::unique_ptr<MeshRun> mesh)
    : schedule_(std::move(schedule)),
      options_(WithCollectives(std::move(options), mesh.get())),
      processes_(std::move(processes)),
      mesh_(std::move(mesh)),
      collectives_(processes_.get()),
      ranks_(ranks),
      built_(schedule_, options_.parallel, options_.stage, options_.devices.by_rank,
             ValueOrThrow(StageBuilder::Make(schedule_, options_.parallel, options_.offload_folder,
                                             ranks_, processes_.get(), options_.devices))),
      batches_(schedule_),
      after_step_(Index(schedule_.ranks())),
      last_batch_(options_.devices.by_rank[schedule_.placement.rank_of(0)]),
      step_(options_.first_step) {
  KeepFreedMemory();
}

EnginePipeline::~EnginePipeline() {
  // A forked process has no threads that could end.
  if (process_ != getpid()) static_cast<void>(session_.release());
  const nb::gil_scoped_release no_gil;
  session_.reset();
}

void EnginePipeline::SetShared(std::vector<std::vector<int>> stages) {
  schedule_.shared = std::move(stages);
}

Tensors EnginePipeline::Build(int stage, StageParts parts) {
  const Placement& placement = schedule_.placement;
  if (parts.after_step) {
    after_step_[Index(placement.rank_of(stage))].push_back(std::move(parts.after_step));
  }
  return built_.Build(stage, std::move(parts), batches_.SourceOf(placement.next(stage) < 0));
}

RunOptions EnginePipeline::OptionsOfRun() {
  RunOptions run;
  run.first_step = step_;
  run.watchdog = std::chrono::milliseconds(static_cast<std::int64_t>(options_.watchdog * 1e3));
  // After a fork, the first call renews a thread pool of torch, which threads may not do at once.
  const auto mutex = std::make_shared<std::mutex>();
  run.on_thread_start = [mutex, threads = options_.threads,
                         c10d = options_.stage.rank.c10d](int rank) {
    const std::lock_guard lock(*mutex);
    at::set_num_threads(threads);
    JoinC10dRun(rank, c10d);
  };
  run.on_step = [this](int rank, std::int64_t step) { AfterStep(rank, step); };
  run.on_verdict = [this](std::int64_t step, const Verdict& verdict) {
    if (batches_.IsLast(step)) own_.norm = verdict.norm;
  };
  run.update = options_.update;
  run.update.zero = built_.builder().zero();
  run.update.nonfinite_remedy = "lower the learning rate, or pass skip_nonfinite=True";
  run.trace = trace_.get();
  run.ranks = &ranks_;
  run.group = processes_.get();
  return run;
}

Status EnginePipeline::Start() {
  if (session_ && process_ == getpid()) return {};
  static_cast<void>(session_.release());  // its threads belong to the process that was forked
  static_cast<void>(trace_.release());
  PENSTOCK_TRY(Trace trace, Trace::Make(schedule_, 1, ranks_.here()));
  trace_ = std::make_unique<Trace>(std::move(trace));
  session_ = std::make_unique<RunSession>(schedule_, built_.pointers(), OptionsOfRun());
  process_ = getpid();
  return {};
}

void EnginePipeline::AfterStep(int rank, std::int64_t step) {
  for (const auto& after_step : after_step_[Index(rank)]) after_step();
  const int last = schedule_.stages() - 1;
  if (rank == schedule_.placement.rank_of(last)) {
    const TorchStage& stage = *built_.stages()[Index(last)];
    losses_[Index(batches_.IndexOf(step))] = stage.StepLoss();
    if (batches_.IsLast(step)) own_.losses = stage.MicrobatchLosses();
  }
}

void EnginePipeline::Gather() {
  const nb::gil_scoped_release no_gil;
  built_.ForEach([](TorchStage& stage) { stage.StartGather(); });
  built_.ForEach([](TorchStage& stage) { stage.FinishGather(/*keep=*/true); });
}

void EnginePipeline::DropGathered() {
  built_.ForEach([](TorchStage& stage) { stage.DropGathered(); });
}

void EnginePipeline::SetWeights(int stage, const Tensors& whole) {
  const nb::gil_scoped_release no_gil;
  built_.stages().at(Index(stage))->SetWeights(whole);
}

void EnginePipeline::ReadWeights() {
  const nb::gil_scoped_release no_gil;
  built_.ForEach([](TorchStage& stage) { stage.ReadWeights(); });
}

void EnginePipeline::SetSteps(std::int64_t steps) {
  const nb::gil_scoped_release no_gil;
  session_.reset();  // whose ranks count steps
  built_.ForEach([](TorchStage& stage) { stage.Restart(); });
  step_ = steps;
}

std::vector<double> EnginePipeline::Run(std::vector<Batch> batches,
                                        std::vector<std::vector<std::int64_t>> shapes) {
  if (failure_) {
    throw std::runtime_error("an earlier step failed: make a new Pipeline (" + *failure_ + ")");
  }
  if (batches.empty()) return {};
  if (mesh_) ThrowIfFailed(mesh_->status());
  batches_.Begin(step_, std::move(batches), std::move(shapes));
  const std::ptrdiff_t steps = std::ssize(batches_.all());
  last_batch_.Remember(batches_.all().back());
  losses_.assign(Index(steps), 0);
  bool interrupted = false;
  Status status;
  {
    const nb::gil_scoped_release no_gil;
    for (const int rank : ranks_.here()) AwaitCaller(options_.devices.by_rank[Index(rank)]);
    status = Start();
    if (status) session_->Begin(steps);
  }
  if (status) {
    const nb::gil_scoped_release no_gil;
    status = session_->End([&interrupted] {
      const nb::gil_scoped_acquire gil;
      return interrupted = PyErr_CheckSignals() != 0;
    });
    if (!status) session_.reset();
    if (!status && mesh_) mesh_->Abort(status.error());
  }
  if (!status && !interrupted && ForgetStep()) ThrowIfFailed(status);
  step_ += steps;
  batches_.End();
  if (!status) failure_ = status.error().line();
  if (interrupted) {
    failure_ = "interrupted";
    throw nb::python_error();
  }
  ThrowIfFailed(status);
  const nb::gil_scoped_release no_gil;
  own_.has_final = built_.stages().back() != nullptr;
  ThrowIfFailed(figures_.Gather(collectives_, has_last_stage() ? &own_ : nullptr,
                                batches_.reports(), losses_));
  return losses_;
}

bool EnginePipeline::ForgetStep() {
  // A failure also ends the groups of replicas.
  if (collectives_.processes() > 1 || mesh_ || batches_.all().size() > 1 ||
      built_.builder().zero() > 0)
    return false;
  const nb::gil_scoped_release no_gil;
  bool forgotten = true;
  built_.ForEach([&](TorchStage& stage) { forgotten = stage.ForgetStep(step_) && forgotten; });
  if (forgotten) batches_.End();
  return forgotten;
}

bool EnginePipeline::has_last_stage() const {
  const Placement& placement = schedule_.placement;
  for (int stage = 0; stage < schedule_.stages(); ++stage) {
    if (placement.next(stage) < 0 && built_.stages()[Index(stage)]) return true;
  }
  return false;
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

std::vector<std::int64_t> EnginePipeline::SavedBytes() const {
  std::vector<std::int64_t> bytes;
  for (const auto& stage : built_.stages()) bytes.push_back(stage ? stage->SavedBytes() : 0);
  return bytes;
}

}  // namespace penstock::python
