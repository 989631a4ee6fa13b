#include "graph/passes/passes.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "graph/ir/verify.h"
#include "graph/passes/pass_observer.h"

namespace penstock {
namespace {

constexpr std::array kPasses = {
#define PENSTOCK_PASS(name, run, must_run, for_cpus, why) Pass{name, run, must_run, for_cpus, why},
#include "graph/passes/passes.def"
#undef PENSTOCK_PASS
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
  if (const PassObserver* observer = ScopedPassObserver::Current()) (*observer)("", 0, graphs);
  if (options.stop_after == kCapture) return {};
  for (const Pass& pass : kPasses) {
    const bool disabled = std::find(options.disabled.begin(), options.disabled.end(), pass.name) !=
                          options.disabled.end();
    if (disabled && pass.must_run) {
      return InvalidArgument("pass {} cannot be disabled, because later passes depend on it",
                             pass.name);
    }
    const bool skipped = disabled || (pass.for_cpus && !graphs.joint.device.is_cpu());
    if (!skipped) PENSTOCK_TRY_STATUS(RunPass(pass, graphs, options));
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
