// Measures how much communication a multiplexed graph hides.
//
// Two ranks, one thread each, train a stage of two blocks: matmul -> all_to_all -> two matmuls ->
// all_to_all, with a residual. The link's bandwidth is set so that the eight exchanges of a forward
// and a backward take a given share of their compute. Milliseconds of one forward and one backward
// of different microbatches on the slower rank, medians over runs that alternate between all cases:
//   in turn      forward, then backward; every exchange blocks
//   each alone   the same, with each graph ordered by the list scheduler
//   multiplexed  both as one graph, with the costs that runs estimate
//   predicted    the scheduler's time for the multiplexed graph
//   hidden       share of the communication that is hidden: (in turn - multiplexed) / (in turn - in
//                turn without delay); the gain is in turn / multiplexed
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "base/system/allocator.h"
#include "collective/local_group.h"
#include "graph/compile.h"
#include "graph/ops/collective.h"
#include "graph/passes/multiplex.h"

namespace penstock {
namespace {

constexpr int kRanks = 2;
constexpr int kBlocks = 2;
constexpr int kExchanges = 4 * kBlocks;  // of a forward and a backward
constexpr std::int64_t kTokens = 512;
constexpr std::int64_t kDim = 256;
constexpr std::int64_t kExpertDim = 512;
constexpr int kMeasured = 5;                                // runs to measure the compute
constexpr int kRuns = 15;                                   // per case
constexpr std::array kShares = {0.0, 0.25, 0.5, 1.0, 2.0};  // communication to compute
constexpr std::size_t kVariants = 3;

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

StageSpec Blocks(int group) {
  StageSpec spec;
  for (int block = 0; block < kBlocks; ++block) {
    for (const auto& [rows, columns] :
         {std::pair(kDim, kDim), std::pair(kDim, kExpertDim), std::pair(kExpertDim, kDim)}) {
      const at::Tensor weight = (at::randn({rows, columns}) * 0.05).requires_grad_(true);
      spec.parameters.push_back({fmt::format("w{}", spec.parameters.size()), weight});
    }
  }
  spec.inputs = {at::randn({kTokens, kDim})};
  spec.input_gradients = {0};
  spec.forward = [group, parameters = spec.parameters](std::span<const at::Tensor> inputs) {
    at::Tensor x = inputs[0];
    for (std::size_t i = 0; i < parameters.size(); i += 3) {
      const at::Tensor sent = AllToAll(x.mm(parameters[i].tensor), group);
      const at::Tensor inside = at::gelu(sent.mm(parameters[i + 1].tensor));
      x = x + AllToAll(inside.mm(parameters[i + 2].tensor), group);
    }
    return std::vector{x};
  };
  return spec;
}

template <class T>
T Value(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().line());
  return *std::move(result);
}

// A graph bound to memory. Every run gets a new list of the inputs.
class BoundGraph {
 public:
  BoundGraph(const Graph& graph, const GraphBinding& binding, std::vector<at::Tensor> inputs)
      : program_(graph, binding), inputs_(std::move(inputs)), outputs_(graph.outputs.size()) {}

  void Run() {
    std::vector<at::Tensor> inputs = inputs_;
    program_.Run(inputs, outputs_);
    for (at::Tensor& output : outputs_) output = at::Tensor();
  }

 private:
  GraphProgram program_;
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> outputs_;
};

// The programs of a rank for one share of communication, and their times in seconds.
class Case {
 public:
  Case(double share, int number) : share_(share), group_(number) {}

  // Called by the threads of all ranks at the same time.
  void Build(int rank, std::unique_ptr<RankGroup> end, const NodeCosts& costs) {
    Rank& mine = ranks_[rank];
    mine.end = std::make_unique<GroupEndpoint>(group_, std::move(end));
    const StageSpec spec = Blocks(group_);
    const StageGraphs graphs = Value(BuildStageGraphs(Value(CaptureStage(spec)), CompileOptions{}));
    const Graph backward = WholeBackward(graphs);
    GraphBinding binding;
    for (const NamedTensor& each : spec.parameters) {
      binding.parameters.push_back(each.tensor.detach());
      binding.gradients.push_back(at::zeros_like(binding.parameters.back()));
    }
    const std::vector<at::Tensor> a = {at::randn({kTokens, kDim})};
    const std::vector<at::Tensor> b = HeldForBackward(graphs, backward, binding);
    const MultiplexedGraph multiplexed = Value(MultiplexGraphs(graphs.forward, backward, costs));
    if (rank == 0) predicted_ = multiplexed.seconds;
    std::vector<at::Tensor> both = a;
    both.insert(both.end(), b.begin(), b.end());
    mine.variants[0].emplace_back(graphs.forward, binding, a);
    mine.variants[0].emplace_back(backward, binding, b);
    mine.variants[1].emplace_back(Alone(graphs.forward, costs), binding, a);
    mine.variants[1].emplace_back(Alone(backward, costs), binding, b);
    mine.variants[2].emplace_back(multiplexed.graph, binding, both);
  }

  double Run(int rank, std::size_t variant) {
    const auto start = Clock::now();
    for (BoundGraph& graph : ranks_[rank].variants[variant]) graph.Run();
    return Seconds(Clock::now() - start).count();
  }
  void Destroy(int rank) { ranks_[rank] = {}; }
  void Add(std::size_t variant, double seconds) { seconds_[variant].push_back(seconds); }

  double share() const { return share_; }
  double predicted() const { return predicted_; }
  double Median(std::size_t variant) {
    std::vector<double>& all = seconds_[variant];
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
  }

 private:
  struct Rank {
    std::unique_ptr<GroupEndpoint> end;
    std::array<std::vector<BoundGraph>, kVariants> variants;
  };

  static Graph Alone(const Graph& graph, const NodeCosts& costs) {
    return Value(MultiplexGraphs(graph, Graph(), costs)).graph;
  }

  static std::vector<at::Tensor> HeldForBackward(const StageGraphs& graphs, const Graph& backward,
                                                 const GraphBinding& binding) {
    std::map<ValueId, at::Tensor> held;
    held[graphs.forward.inputs.front()] = at::randn({kTokens, kDim});
    held[graphs.joint.output_gradients.front()] = at::randn({kTokens, kDim});
    const std::vector<at::Tensor> inputs = {held.at(graphs.forward.inputs.front())};
    const std::vector<at::Tensor> made = RunReference(graphs.forward, binding, inputs);
    for (std::size_t i = 0; i < made.size(); ++i) held[graphs.forward.outputs[i]] = made[i];
    std::vector<at::Tensor> values;
    for (const ValueId input : backward.inputs) values.push_back(held.at(input));
    return values;
  }

  double share_;
  int group_;
  double predicted_ = 0;
  std::array<Rank, kRanks> ranks_;
  std::array<std::vector<double>, kVariants> seconds_;
};

// All cases on all ranks. Rank 0 first measures the compute time in the case without delay.
class Measurement {
 public:
  Measurement() {
    for (std::size_t i = 0; i < kShares.size(); ++i) {
      cases_.push_back(std::make_unique<Case>(kShares[i], static_cast<int>(i)));
    }
  }

  void Run() {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([this, rank] { RunRank(rank); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void Print() {
    fmt::print(
        "A forward and a backward of different microbatches: {} blocks, {} tokens, dim {}, {} "
        "ranks; "
        "milliseconds\n",
        kBlocks, kTokens, kDim, kRanks);
    fmt::print("{:>14} {:>9} {:>9} {:>11} {:>12} {:>10} {:>7} {:>6}\n", "comm / compute", "comm",
               "in turn", "each alone", "multiplexed", "predicted", "hidden", "gain");
    const double compute = cases_.front()->Median(0);
    for (const auto& each : cases_) {
      const double in_turn = each->Median(0);
      const double multiplexed = each->Median(2);
      const double communication = in_turn - compute;
      const std::string hidden =
          each == cases_.front()
              ? "-"
              : fmt::format("{:.0f}%", 100 * (in_turn - multiplexed) / communication);
      fmt::print("{:>14.2f} {:>9.1f} {:>9.1f} {:>11.1f} {:>12.1f} {:>10.1f} {:>7} {:>5.2f}x\n",
                 each->share(), 1e3 * communication, 1e3 * in_turn, 1e3 * each->Median(1),
                 1e3 * multiplexed, 1e3 * each->predicted(), hidden, in_turn / multiplexed);
    }
  }

 private:
  // Runs the variant on all ranks at the same time and returns the time of the slowest.
  double Timed(Case& measured, int rank, std::size_t variant) {
    all_.arrive_and_wait();
    took_[rank] = measured.Run(rank, variant);
    all_.arrive_and_wait();
    return *std::max_element(took_.begin(), took_.end());
  }

  void RunRank(int rank) {
    at::set_num_threads(1);
    BuildCase(rank, *cases_.front(), {});
    double compute = 0;
    for (int run = 0; run < kMeasured; ++run) {
      const double seconds = Timed(*cases_.front(), rank, 0);
      compute = run == 0 ? seconds : std::min(compute, seconds);
    }
    for (const auto& each : cases_) {
      if (each == cases_.front()) continue;
      LinkSpeed speed;
      const double bytes = static_cast<double>(kTokens * kDim) * sizeof(float);
      speed.bytes_per_second = kExchanges * bytes / (each->share() * compute);
      BuildCase(rank, *each, speed);
    }
    for (int run = 0; run < kRuns; ++run) {
      for (const auto& each : cases_) {
        for (std::size_t variant = 0; variant < kVariants; ++variant) {
          const double seconds = Timed(*each, rank, variant);
          if (rank == 0) each->Add(variant, seconds);
        }
      }
    }
    for (const auto& each : cases_) each->Destroy(rank);
  }

  void BuildCase(int rank, Case& built, LinkSpeed speed) {
    if (rank == 0) ends_ = MakeLocalGroup(kRanks, {}, speed);
    all_.arrive_and_wait();
    built.Build(rank, std::move(ends_[rank]), NodeCosts(speed));
  }

  std::vector<std::unique_ptr<Case>> cases_;
  std::barrier<> all_{kRanks};
  std::array<double, kRanks> took_ = {};
  std::vector<std::unique_ptr<RankGroup>> ends_;
};

}  // namespace
}  // namespace penstock

int main() {
  penstock::KeepFreedMemory();
  penstock::Measurement measurement;
  measurement.Run();
  measurement.Print();
}
