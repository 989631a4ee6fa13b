// Measures stages with experts. For each line of its input, runs one of these for half a second and
// prints the mean milliseconds of one:
//
//   stage      F, I and W of a stage of two Mixtral blocks
//   grouped    a grouped matmul, forward and both gradients
//   dense      a matmul of as many FLOPs with one matrix, likewise
//
// bench/moe.py runs it in turns with its peers.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/system/allocator.h"
#include "graph/compile.h"
#include "graph/ir/graph_tools.h"
#include "model/model.h"
#include "train/stage/bound_program.h"
#include "train/stage/torch_stage.h"

namespace penstock {
namespace {

constexpr double kSeconds = 0.5;
constexpr std::int64_t kSequence = 256;  // tokens are a batch of these

struct Sizes {
  std::int64_t tokens, dim, hidden, experts, top_k, heads;
  at::ScalarType dtype;
};

// A stage with its weights and one microbatch.
class MoeStage {
 public:
  explicit MoeStage(const Sizes& sizes) {
    ModelConfig model;
    model.name = "mixtral";
    model.layers = 4;
    model.dim = sizes.dim;
    model.sequence = kSequence;
    model.options = {{"heads", std::to_string(sizes.heads)},
                     {"hidden", std::to_string(sizes.hidden)},
                     {"experts", std::to_string(sizes.experts)},
                     {"top_k", std::to_string(sizes.top_k)},
                     {"balance", "none"}};
    const LayerRange range{1, 3, false, false};
    auto module = BuildStage(model, range).value();
    if (sizes.dtype != at::kFloat) module = CastStage(*module, model, range, sizes.dtype).value();
    const std::int64_t batch = sizes.tokens / kSequence;
    input_ = at::randn({batch, kSequence, sizes.dim}).to(sizes.dtype);
    gradient_ = at::randn({batch, kSequence, sizes.dim}).to(sizes.dtype);
    GraphBinding binding;
    for (const auto& parameter : module->named_parameters()) {
      binding.parameters.push_back(parameter.value().detach());
      binding.gradients.push_back(at::zeros_like(parameter.value(), at::kFloat).detach());
    }
    binding.generator = at::detail::createCPUGenerator();
    CompileOptions how;
    how.exact = false;
    how.fuse = true;
    const StageExamples examples{{input_.clone().requires_grad_(true)}};
    StageProgram program =
        CompileStage(MakeStageSpec(module, examples, TorchStageOptions()), how).value();
    slots_.resize(static_cast<std::size_t>(program.slots));
    bound_ = std::make_unique<BoundProgram>(std::move(program), binding);
  }

  void Run() {
    slots_[static_cast<std::size_t>(bound_->program.inputs[0].slot)] = input_;
    bound_->forward.Run(slots_);
    slots_[static_cast<std::size_t>(bound_->gradient_slots[0])] = gradient_;
    bound_->backward_input.Run(slots_);
    bound_->backward_weight.Run(slots_);
  }

 private:
  at::Tensor input_, gradient_;
  std::vector<at::Tensor> slots_;
  std::unique_ptr<BoundProgram> bound_;
};

// Matmuls of the rows of all tokens: grouped by experts with equally many rows, or with one matrix.
class Matmuls {
 public:
  explicit Matmuls(const Sizes& sizes)
      : rows_(at::randn({sizes.tokens * sizes.top_k, sizes.dim}).to(sizes.dtype)),
        gradient_(at::randn({sizes.tokens * sizes.top_k, sizes.hidden}).to(sizes.dtype)),
        weights_(at::randn({sizes.experts, sizes.hidden, sizes.dim}).to(sizes.dtype)),
        counts_(at::full({sizes.experts}, rows_.size(0) / sizes.experts, at::kLong)) {}

  void Grouped() {
    using Op = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&);
    static const auto forward = FindOp("penstock::grouped_linear", "").typed<Op>();
    static const auto input = FindOp("penstock::grouped_linear_input", "").typed<Op>();
    static const auto weight = FindOp("penstock::grouped_linear_weight", "")
                                   .typed<at::Tensor(const at::Tensor&, const at::Tensor&,
                                                     const at::Tensor&, std::int64_t)>();
    forward.call(rows_, weights_, counts_);
    input.call(gradient_, weights_, counts_);
    weight.call(gradient_, rows_, counts_, weights_.size(0));
  }
  void Dense() {
    const at::Tensor matrix = weights_.select(0, 0);
    at::mm(rows_, matrix.t());
    at::mm(gradient_, matrix);
    at::mm(gradient_.t(), rows_);
  }

 private:
  at::Tensor rows_, gradient_, weights_, counts_;
};

double MeanMilliseconds(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  run();
  const auto start = Clock::now();
  std::chrono::duration<double> passed{};
  int runs = 0;
  for (; passed.count() < kSeconds; ++runs, passed = Clock::now() - start) run();
  return 1e3 * passed.count() / runs;
}

int Main(int argc, char** argv) {
  if (argc != 8) {
    fmt::print(stderr, "usage: moe_speed TOKENS DIM HIDDEN EXPERTS TOP_K HEADS f32|bf16\n");
    return 2;
  }
  const auto number = [&](int index) { return std::stoll(argv[index]); };
  const Sizes sizes{number(1),
                    number(2),
                    number(3),
                    number(4),
                    number(5),
                    number(6),
                    std::string(argv[7]) == "bf16" ? at::kBFloat16 : at::kFloat};
  KeepFreedMemory();
  at::set_num_threads(1);
  const at::NoGradGuard no_gradients;
  MoeStage stage = [&] {
    const at::AutoGradMode with_gradients(true);
    return MoeStage(sizes);
  }();
  Matmuls matmuls(sizes);
  for (std::string what; std::getline(std::cin, what);) {
    const double time = MeanMilliseconds([&] {
      if (what == "stage") stage.Run();
      if (what == "grouped") matmuls.Grouped();
      if (what == "dense") matmuls.Dense();
    });
    fmt::print("{}\n", time);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::Main(argc, argv); }
