#include "graph/passes/passes.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "graph/ir/flops.h"
#include "graph/ir/verify.h"
#include "graph/passes/pass_observer.h"

namespace penstock {
namespace {

constexpr std::array kPasses = {
    Pass{"split_fsdp_prefetch", SplitFsdpPrefetch, true,
         "first, so that weights are parameters to all other passes"},
    Pass{"split_fsdp_reduce_scatter", SplitFsdpReduceScatter, true,
         "before the partition, so that gradients of parameters are outputs of the backward"},
    Pass{"fold_constants", FoldConstants, false,
         "early: values that depend only on constants are computed once and never saved"},
    Pass{"simplify", Simplify, false,
         "before equal calls are merged, because it makes more calls equal"},
    Pass{"cross_entropy", CrossEntropy, false,
         "before dead nodes are removed, because it leaves nll_loss_backward unread; only if "
         "results need "
         "not be bitwise exact"},
    Pass{
        "attention_by_matmul", AttentionByMatmul, false,
        "on the joint graph, because it changes what is saved; only if results need not be bitwise "
        "exact"},
    Pass{"merge_common", MergeCommon, false,
         "before the partition, which determines what is saved"},
    Pass{"remove_dead", RemoveDead, false,
         "before the partition, so that nothing is saved for unused nodes"},
    Pass{"partition", Partition, true, "splits the joint graph into forward and backward"},
    Pass{
        "recompute", Recompute, false,
        "right after the partition, which determines what is saved; later passes see one backward"},
    Pass{"accumulate_gradients", AccumulateGradients, true,
         "before the split, which then places the additions"},
    Pass{"accumulate_in_matmul", AccumulateInMatmul, false,
         "after the additions exist as nodes; only if results need not be bitwise exact"},
    Pass{"matmul_by_onednn", MatmulByOneDnn, false,
         "after weight gradients are accumulated in their matmuls; only if results need not be "
         "bitwise "
         "exact"},
    Pass{"split_di_dw", SplitInputWeight, true, "splits the final backward"},
    Pass{"recompute_for_weight", RecomputeForWeight, false,
         "after the split, which determines what W reads"},
    Pass{"fuse", Fuse, false, "on the final graphs, so that no other pass has to handle kernels"},
    Pass{"multiplex", Multiplex, false, "last: it merges the final graphs"},
};

Status CheckName(std::string_view name, const char* what) {
  for (const Pass& pass : kPasses) {
    if (pass.name == name) return {};
  }
  std::vector<std::string_view> names;
  for (const Pass& pass : kPasses) names.push_back(pass.name);
  return InvalidArgument(
      "{}: there is no pass {}; {}", what, Quote(name),
      DidYouMean(name, names, fmt::format("use one of {}", fmt::join(names, ", "))));
}

// Fails if passes will plan by FLOPs and the FLOPs of an op are not known.
Status CheckFlops(const StageGraphs& graphs, const CompileOptions& options) {
  const bool plans = options.save_budget != kSaveAll ||
                     options.save_budget_for_weight != kSaveAll || options.overlapped;
  if (!plans) return {};
  PENSTOCK_TRY([[maybe_unused]] const std::int64_t flops, FlopsOf(graphs.joint.graph));
  return {};
}

Status RunPass(const Pass& pass, StageGraphs& graphs, const CompileOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  PENSTOCK_TRY_STATUS(pass.run(graphs, options));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (const PassObserver* observer = ScopedPassObserver::Current()) {
    (*observer)(pass.name, took.count(), graphs);
  }
  return {};
}

}  // namespace

std::vector<Graph*> AllGraphs(StageGraphs& graphs) {
  std::vector<Graph*> all;
  for (Graph* graph :
       {&graphs.joint.graph, &graphs.forward, &graphs.backward, &graphs.backward_input,
        &graphs.backward_weight, &graphs.overlapped, &graphs.unshard, &graphs.reduce_grad}) {
    if (!graph->name.empty()) all.push_back(graph);
  }
  return all;
}

std::span<const Pass> Passes() { return kPasses; }

Status RunPasses(StageGraphs& graphs, const CompileOptions& options) {
  for (const std::string& name : options.disabled) {
    PENSTOCK_TRY_STATUS(CheckName(name, "the pass to disable"));
  }
  if (!options.stop_after.empty() && options.stop_after != kCapture) {
    PENSTOCK_TRY_STATUS(CheckName(options.stop_after, "the pass to stop after"));
  }
  PENSTOCK_TRY_STATUS(VerifyGraph(graphs.joint.graph));
  PENSTOCK_TRY_STATUS(CheckFlops(graphs, options));
  if (const PassObserver* observer = ScopedPassObserver::Current()) (*observer)("", 0, graphs);
  if (options.stop_after == kCapture) return {};
  for (const Pass& pass : kPasses) {
    const bool disabled = std::find(options.disabled.begin(), options.disabled.end(), pass.name) !=
                          options.disabled.end();
    if (disabled && pass.must_run) {
      return InvalidArgument("pass {} cannot be disabled, because later passes depend on it",
                             pass.name);
    }
    if (!disabled) PENSTOCK_TRY_STATUS(RunPass(pass, graphs, options));
    for (const Graph* graph : AllGraphs(graphs)) {
      if (const Status status = VerifyGraph(*graph); !status) {
        return MakeError(status.error().code, "after pass {}: {}", pass.name,
                         status.error().line());
      }
    }
    if (pass.name == options.stop_after) break;
  }
  return {};
}

}  // namespace penstock
