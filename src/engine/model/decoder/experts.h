// A mixture of experts in place of a block's feed-forward layer (Shazeer et al. 2017; Mixtral,
// 2024; DeepSeekMoE, 2024): a router chooses some experts for each token. No token is dropped, and
// nothing is padded.
#pragma once

#include <cstdint>
#include <memory>

#include "graph/ops/routing.h"
#include "model/layers.h"
#include "model_spec/models/expert_options.h"

namespace penstock {

// The experts that tokens chose.
struct ExpertChoice {
  torch::Tensor experts;  // [T, K] int64
  torch::Tensor weights;  // [T, K] f32
  torch::Tensor scores;   // [T, experts] f32
};

// Chooses experts for tokens, in fp32.
class Router : public DividedModule {
 public:
  // `cut` says whether ranks choose for different tokens.
  Router(std::int64_t dim, const ExpertOptions& options, const Cut& cut);
  ExpertChoice Choose(const torch::Tensor& tokens);  // [T, D]
  // The bias of the choice; undefined unless options.balance is "bias".
  const torch::Tensor& bias() const { return bias_; }

 private:
  torch::Tensor Biased(const torch::Tensor& scores);
  torch::Tensor Best(const torch::Tensor& scores);  // the chosen experts, [T, top_k]

  ExpertOptions options_;
  torch::Tensor weight_;  // [experts, D]
  torch::Tensor bias_;    // [experts]
};

// Registers its parameters in the caller's block: router.weight, router.bias, experts.w1 to w3
// ([experts, out, in] each), and shared.w1 to w3.
//
// With expert parallelism, it has an equal part of the experts. Ranks send the rows of their tokens
// to the ranks of the experts, which return the results (GShard, Lepikhin et al. 2021,
// section 2.2). They multiply the rows of each rank on their own, so results are bitwise those
// without. With tensor parallelism, it has a part of the width of each expert, or whole experts for
// the rank's share of the tokens (LayerRange::has_whole_experts).
class ExpertLayer : public FeedForward {
 public:
  // `hidden` is the width of an expert.
  ExpertLayer(torch::nn::Module& block, std::int64_t dim, std::int64_t hidden,
              const ExpertOptions& options, const LayerRange& range);
  torch::Tensor Run(const torch::Tensor& input) override;
  void SetLossGradient(double gradient) override { loss_gradient_ = gradient; }

 private:
  Routing Sorted(const torch::Tensor& chosen);
  // Runs this rank's experts on rows; `counts` says how many belong to each.
  torch::Tensor RunRows(const torch::Tensor& rows, const torch::Tensor& counts);
  // Runs the experts of all ranks.
  torch::Tensor RunOnRanks(const torch::Tensor& rows, const torch::Tensor& counts);
  // Adds the gradients that balance the load of all tokens.
  torch::Tensor Balance(const torch::Tensor& output, const ExpertChoice& choice,
                        const Routing& routing);

  ExpertOptions options_;
  int ranks_;          // that divide the experts
  TensorPlace place_;  // of the ranks that divide each expert
  ContextPlace context_;
  int routers_;  // ranks that choose for different tokens
  double loss_gradient_ = 1;
  std::shared_ptr<Router> router_;
  torch::Tensor w1_, w2_, w3_;
  std::unique_ptr<SwiGlu> shared_;
  torch::nn::Module& block_;
};

}  // namespace penstock
