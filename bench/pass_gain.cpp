// Measures the gain of each pass of the graph compiler: compiles the last stage of the benchmark's
// model with all passes and then without each of them, and times its F, I and W on one thread.
//
// Medians over runs that alternate between the variants, so that a drifting machine affects all
// alike. "slower" is the time without the pass relative to the time with all passes; "held" is what
// a microbatch holds from F to its backward, "live" from I to W. The last rows disable all optional
// passes, and all that are not bitwise exact. The time to capture and compile is above each table.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/median.h"
#include "base/system/allocator.h"
#include "base/units.h"
#include "graph/compile.h"
#include "graph/passes/passes.h"
#include "model/model.h"
#include "train/stage/bound_program.h"
#include "train/stage/torch_stage.h"

namespace penstock {
namespace {

constexpr int kRounds = 9;
constexpr double kRoundSeconds = 0.08;  // per variant

struct Case {
  const char* name;
  ModelConfig model;
  bool half;
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A stage compiled with one set of options, with its inputs.
struct Variant {
  std::string name;
  std::unique_ptr<BoundProgram> bound;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> held;
  std::vector<double> forward = {}, input = {}, weight = {};  // seconds, one per round

  double total() const { return Median(forward) + Median(input) + Median(weight); }

  void RunOnce(double seconds[3]) {
    const StageProgram& program = bound->program;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      held[program.inputs[i].slot] = inputs[i];
    }
    const double start = Now();
    bound->forward.Run(held);
    const double forward_end = Now();
    bound->backward_input.Run(held);
    const double input_end = Now();
    bound->backward_weight.Run(held);
    seconds[0] += forward_end - start;
    seconds[1] += input_end - forward_end;
    seconds[2] += Now() - input_end;
  }

  void Round() {
    double seconds[3] = {};
    int runs = 0;
    for (const double end = Now() + kRoundSeconds; Now() < end || runs == 0; ++runs) {
      RunOnce(seconds);
    }
    forward.push_back(seconds[0] / runs);
    input.push_back(seconds[1] / runs);
    weight.push_back(seconds[2] / runs);
  }
};

// The last of two stages, and one microbatch for it.
struct Subject {
  std::shared_ptr<StageModule> module;
  StageExamples examples;
  TorchStageOptions options;
  GraphBinding binding;

  StageSpec Spec() const { return MakeStageSpec(module, examples, options); }
};

Result<Subject> MakeSubject(const Case& subject) {
  const ModelConfig& model = subject.model;
  const LayerRange range{model.layers / 2, model.layers, false, true};
  Subject made;
  PENSTOCK_TRY(made.module, BuildStage(model, range));
  const auto dtype = subject.half ? at::kBFloat16 : at::kFloat;
  if (subject.half) {
    PENSTOCK_TRY(made.module, CastStage(*made.module, model, range, dtype));
  }
  made.examples.inputs = {at::randn({1, model.sequence, model.dim}).to(dtype).requires_grad_(true)};
  made.examples.targets = {at::randint(model.vocabulary, {1, model.sequence}, at::kLong)};
  made.options.schedule.last = true;
  made.options.schedule.microbatches = 8;
  for (const auto& parameter : made.module->named_parameters()) {
    made.binding.parameters.push_back(parameter.value().detach());
    made.binding.gradients.push_back(at::zeros_like(parameter.value(), at::kFloat).detach());
  }
  made.binding.generator = at::detail::createCPUGenerator();
  return made;
}

Result<Variant> MakeVariant(const Subject& subject, std::string name, const CompileOptions& how) {
  PENSTOCK_TRY(StageProgram program, CompileStage(subject.Spec(), how));
  const StageExamples& examples = subject.examples;
  Variant variant{
      std::move(name), nullptr, {examples.inputs[0].detach(), examples.targets.front()}, {}};
  variant.held.resize(program.slots);
  variant.bound = std::make_unique<BoundProgram>(std::move(program), subject.binding);
  return variant;
}

Result<std::vector<Variant>> MakeVariants(const Subject& subject) {
  CompileOptions all;
  all.exact = false;
  all.fuse = true;
  CompileOptions none = all;
  std::vector<Variant> variants;
  const auto add = [&](std::string name, const CompileOptions& how) -> Status {
    PENSTOCK_TRY(Variant variant, MakeVariant(subject, std::move(name), how));
    variants.push_back(std::move(variant));
    return {};
  };
  PENSTOCK_TRY_STATUS(add("all passes", all));
  for (const Pass& pass : Passes()) {
    if (pass.must_run) continue;
    none.disabled.emplace_back(pass.name);
    if (pass.name.starts_with("recompute")) continue;  // does nothing unless configured
    CompileOptions without = all;
    without.disabled = {std::string(pass.name)};
    PENSTOCK_TRY_STATUS(add(fmt::format("without {}", pass.name), without));
  }
  PENSTOCK_TRY_STATUS(add("none of these", none));
  CompileOptions exact = all;
  exact.exact = true;
  PENSTOCK_TRY_STATUS(add("all, bitwise exact", exact));
  return variants;
}

Status Measure(const Case& subject_case) {
  PENSTOCK_TRY(const Subject subject, MakeSubject(subject_case));
  CompileOptions plain;
  plain.exact = false;
  const double start = Now();
  PENSTOCK_TRY(const StageProgram timed, CompileStage(subject.Spec(), plain));
  const double compiled = Now() - start;
  PENSTOCK_TRY(std::vector<Variant> variants, MakeVariants(subject));
  for (Variant& variant : variants) variant.Round();
  for (Variant& variant : variants) variant.forward = variant.input = variant.weight = {};
  for (int round = 0; round < kRounds; ++round) {
    for (Variant& variant : variants) variant.Round();
  }
  fmt::print("{}: capture and compile without generated code {:.2f} s\n", subject_case.name,
             compiled);
  fmt::print("  {:<30} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10} {:>10}\n", "ms", "F", "I", "W", "total",
             "slower", "held", "live");
  for (const Variant& variant : variants) {
    const StageProgram& program = variant.bound->program;
    fmt::print("  {:<30} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f} {:>10} {:>10}\n",
               variant.name, 1e3 * Median(variant.forward), 1e3 * Median(variant.input),
               1e3 * Median(variant.weight), 1e3 * variant.total(),
               variant.total() / variants.front().total(), FormatBytes(program.saved_bytes),
               FormatBytes(program.live_bytes));
  }
  return {};
}

ModelConfig Model(std::int64_t dim, std::int64_t hidden, std::int64_t sequence) {
  ModelConfig model;
  model.dim = dim;
  model.options["hidden"] = std::to_string(hidden);
  model.sequence = sequence;
  model.layers = 8;
  return model;
}

int Main() {
  KeepFreedMemory();
  at::set_num_threads(1);
  const Case cases[] = {{"dim 256, sequence 256, fp32", Model(256, 688, 256), false},
                        {"dim 256, sequence 256, bf16", Model(256, 688, 256), true},
                        {"dim 32, sequence 16, fp32", Model(32, 96, 16), false}};
  for (const Case& each : cases) {
    if (const Status status = Measure(each); !status) {
      fmt::print(stderr, "pass_gain: {}\n", status.error().line());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace penstock

int main() { return penstock::Main(); }
