#include "model/decoder/experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "graph/ops/collective.h"
#include "graph/ops/grouped_linear.h"
#include "graph/ops/module_scope.h"

namespace penstock {
namespace {

// How ranks divide the experts' matrices and the router, if they divide a part of each expert by
// `cut`.
Cut ExpertCut(const LayerRange& range, const Cut& cut) {
  return range.has_whole_experts ? Cut::ByHead(range) : cut;
}
Cut RouterCut(const LayerRange& range) { return ExpertCut(range, Cut()); }

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns x. The backward gives `parameter` the gradient `gradient`, whatever the gradient of x is.
struct SideGradient : torch::autograd::Function<SideGradient> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& /*parameter*/, const torch::Tensor& gradient) {
    context->save_for_backward({gradient});
    return x;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gradients[0], context->get_saved_variables()[0], torch::Tensor()};
  }
};

// [experts, out, in], under the name `weight`.
class ExpertMatrices : public DividedModule {
 public:
  ExpertMatrices(std::int64_t experts, std::int64_t in, std::int64_t out, const Cut& cut)
      : weight_(
            RegisterPart("weight", {experts, out, in}, cut, cut.of == Cut::Of::kInputs ? 2 : 1)) {}
  const torch::Tensor& weight() const { return weight_; }

 private:
  torch::Tensor weight_;
};

// Excludes the experts of all but the best groups from the choice.
torch::Tensor WithinGroups(const torch::Tensor& scores, const ExpertOptions& options) {
  const torch::Tensor grouped = scores.unflatten(-1, {options.groups, -1});  // [T, groups, size]
  const std::int64_t best = options.score == "sigmoid" ? 2 : 1;
  const torch::Tensor of_group = std::get<0>(at::topk(grouped, best, -1)).sum(-1);
  const torch::Tensor chosen = std::get<1>(at::topk(of_group, options.top_groups, -1));
  const torch::Tensor used = at::scatter(at::zeros_like(of_group), -1, chosen, 1);
  const torch::Tensor masked =
      grouped.masked_fill(used.unsqueeze(-1) == 0, -std::numeric_limits<double>::infinity());
  return masked.flatten(-2);
}

}  // namespace

Router::Router(std::int64_t dim, const ExpertOptions& options, const Cut& cut)
    : options_(options), weight_(RegisterPart("weight", {options.experts, dim}, cut, 0)) {
  if (options.balance == "bias") bias_ = RegisterPart("bias", {options.experts}, cut, 0);
}

torch::Tensor Router::Biased(const torch::Tensor& scores) {
  const torch::Tensor biased =
      bias_.defined() ? scores.detach() + bias_.detach().to(at::kFloat) : scores.detach();
  return options_.groups > 1 ? WithinGroups(biased, options_) : biased;
}

// The choice is not part of the MLP, so that a policy that recomputes the MLP never repeats it.
torch::Tensor Router::Best(const torch::Tensor& scores) {
  const ModuleScope never_repeated(ModuleKind::kNone);
  return std::get<1>(at::topk(Biased(scores), options_.top_k, -1));
}

ExpertChoice Router::Choose(const torch::Tensor& tokens) {
  const torch::Tensor logits = at::linear(tokens.to(at::kFloat), weight_.to(at::kFloat));
  const torch::Tensor scores = options_.score == "sigmoid" ? logits.sigmoid() : logits.softmax(-1);
  const torch::Tensor chosen = Best(scores);
  torch::Tensor weights = scores.gather(-1, chosen);
  if (options_.normalize) weights = weights / (weights.sum(-1, /*keepdim=*/true) + 1e-20);
  if (options_.scale != 1) weights = weights * options_.scale;
  return {chosen, weights, scores};
}

ExpertLayer::ExpertLayer(torch::nn::Module& block, std::int64_t dim, std::int64_t hidden,
                         const ExpertOptions& options, const LayerRange& range)
    : options_(options),
      ranks_(range.expert_ranks),
      place_(range.has_whole_experts ? TensorPlace() : TensorPlace::Of(range)),
      context_(ContextPlace::Of(range)),
      routers_(range.has_whole_experts ? range.tensor_ranks : 1),
      router_(block.register_module("router",
                                    std::make_shared<Router>(dim, options, RouterCut(range)))),
      block_(block) {
  const auto experts = block.register_module("experts", std::make_shared<torch::nn::Module>());
  const std::int64_t own = options.experts / ranks_;
  const auto matrices = [&](const char* name, std::int64_t in, std::int64_t out, const Cut& cut) {
    return experts->register_module(name, std::make_shared<ExpertMatrices>(own, in, out, cut))
        ->weight();
  };
  w1_ = matrices("w1", dim, hidden, ExpertCut(range, Cut::Outputs(range)));
  w2_ = matrices("w2", hidden, dim, ExpertCut(range, Cut::Inputs(range)));
  w3_ = matrices("w3", dim, hidden, ExpertCut(range, Cut::Outputs(range)));
  if (options.shared == 0) return;
  const auto shared = block.register_module("shared", std::make_shared<torch::nn::Module>());
  shared_ = std::make_unique<SwiGlu>(*shared, dim, options.shared * hidden, range);
}

torch::Tensor ExpertLayer::RunRows(const torch::Tensor& rows, const torch::Tensor& counts) {
  const torch::Tensor inner =
      at::silu(GroupedLinear(rows, w1_, counts)) * GroupedLinear(rows, w3_, counts);
  return GroupedLinear(inner, w2_, counts);
}

torch::Tensor ExpertLayer::RunOnRanks(const torch::Tensor& rows, const torch::Tensor& counts) {
  if (ranks_ == 1) return RunRows(rows, counts);
  const torch::Tensor received = AllToAll(counts, kExpertGroup);  // by rank, then by expert
  const torch::Tensor outer = RunRows(SendRows(rows, counts, received, kExpertGroup), received);
  return ReturnRows(outer, received, counts, rows.size(0), kExpertGroup);
}

// The loss term is the sum over the experts of their share of the rows times their mean share of
// the scores, times the number of experts (Fedus et al., Switch Transformers, 2022, section 2.2).
// Ranks that have different tokens add their loads. Each then computes the gradients of its scores.
torch::Tensor ExpertLayer::Balance(const torch::Tensor& output, const ExpertChoice& choice,
                                   const Routing& routing) {
  torch::Tensor load = routing.counts.to(at::kFloat);
  double rows = static_cast<double>(choice.experts.numel());
  if (options_.balance == "bias") {
    // Only its sign counts. Whole numbers have exact sums, so that a mean load is 0 on any ranks.
    return SideGradient::apply(output, router_->bias(),
                               load * static_cast<double>(options_.experts) - rows);
  }
  load = SumOverContext(SumOverRanks(load, {.ranks = routers_}), context_);
  const int parts = routers_ * context_.ranks;
  rows *= parts;
  const torch::Tensor shares = choice.scores / choice.scores.sum(-1, /*keepdim=*/true);
  const torch::Tensor loss =
      (load * shares.mean(0)).sum() * (static_cast<double>(options_.experts) / rows / parts);
  const double gradient = options_.balance_loss * loss_gradient_;
  return SideGradient::apply(output, loss, at::full({}, gradient, loss.options()));
}

Routing ExpertLayer::Sorted(const torch::Tensor& chosen) {
  const ModuleScope never_repeated(ModuleKind::kNone);
  return SortByExpert(chosen, options_.experts);
}

// All ranks that divide an expert route all tokens.
torch::Tensor ExpertLayer::Run(const torch::Tensor& input) {
  const torch::Tensor all = AllTokens(input, place_);
  const torch::Tensor tokens = all.reshape({-1, all.size(-1)});
  const TensorPlace with_all = place_.WithAllTokens();
  const ExpertChoice choice = router_->Choose(tokens);
  const Routing routing = Sorted(choice.experts);
  const torch::Tensor rows =
      RunOnRanks(GatherRows(ShareAmongRanks(tokens, with_all), routing), routing.counts);
  const torch::Tensor weights = ShareAmongRanks(choice.weights, with_all);
  torch::Tensor output =
      SumOverRanks(CombineRows(rows, weights, routing).view(all.sizes()), place_);
  if (shared_) output = output + shared_->Run(input);
  if (options_.balance != "none" && block_.is_training()) output = Balance(output, choice, routing);
  return output;
}

}  // namespace penstock
