// penstock graph: prints the graphs of a model's stage, as captured or after any pass.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/units.h"
#include "cli/command.h"
#include "graph/flops.h"
#include "graph/passes.h"
#include "graph/print.h"
#include "graph/shapes_only.h"
#include "train/config.h"
#include "train/stage_graphs.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t Bytes(const Graph& graph, const std::vector<ValueId>& values) {
  std::int64_t bytes = 0;
  for (const ValueId value : values) {
    if (value != kNoValue) bytes += BytesOf(graph.value(value).type);
  }
  return bytes;
}

std::int64_t ParameterBytes(const StageGraphs& graphs) {
  std::int64_t bytes = 0;
  for (const Bound& parameter : graphs.joint.parameters) {
    bytes += BytesOf(graphs.joint.graph.value(parameter.value).type);
  }
  return bytes;
}

class GraphCommand : public Command {
 public:
  std::string Name() const override { return "graph"; }
  std::string Summary() const override { return "Print the graphs of a model's stage"; }
  void Define(CLI::App& app) override {
    std::string passes;
    for (const Pass& pass : Passes()) passes += fmt::format(" {}", pass.name);
    app.add_option("CONFIG", config_, "The training configuration (YAML)")->required();
    app.add_option("OVERRIDES", overrides_, "key=value, as for 'penstock train'");
    app.add_option("--stage", stage_, "Which stage")->capture_default_str();
    app.add_option("--after", options_.stop_after, "Stop after this pass; in order:" + passes);
    app.add_option("--disable", options_.disabled, "Leave these passes out")->delimiter(',');
    app.add_option("--graph", only_,
                   "One graph: joint, forward, backward, backward_input, backward_weight");
    app.add_flag("--inexact", inexact_, "Add weight gradients up inside the matmuls");
    app.add_flag("--shapes-only", shapes_only_,
                 "Capture without the stage's memory: for models larger than this machine");
    app.add_flag("--dot", dot_, "Write Graphviz");
    app.add_flag("--json", json_, "Write figures and text for a machine");
  }
  Result<int> Run() override {
    options_.exact = !inexact_;
    PENSTOCK_TRY(const TrainConfig config, LoadTrainConfig(config_, overrides_));
    std::optional<ShapesOnly> shapes;
    if (shapes_only_) shapes.emplace();
    PENSTOCK_TRY(StageGraphs graphs, GraphsOfStage(config, stage_, options_));
    std::vector<const Graph*> chosen;
    for (const Graph* graph : AllGraphs(graphs)) {
      if (only_.empty() ? IsShown(graphs, *graph) : graph->name == only_) chosen.push_back(graph);
    }
    if (chosen.empty()) {
      return InvalidArgument(
          "there is no graph '{}' here (joint, forward, backward, "
          "backward_input, backward_weight; the later ones only after the pass "
          "that makes them)",
          only_);
    }
    if (json_) {
      PrintJson(graphs, chosen);
      return kExitOk;
    }
    for (const Graph* graph : chosen) {
      fmt::print("{}{}", dot_ ? PrintDot(*graph) : PrintGraph(*graph), dot_ ? "" : "\n");
    }
    if (!dot_) PrintSummary(graphs, chosen);
    return kExitOk;
  }

 private:
  // Without --graph: the pieces that actions run, or what there is before they are cut.
  static bool IsShown(const StageGraphs& graphs, const Graph& graph) {
    if (graphs.forward.name.empty()) return true;
    if (graph.name == "joint") return false;
    return graphs.backward_input.name.empty() || graph.name != "backward";
  }

  void PrintSummary(const StageGraphs& graphs, const std::vector<const Graph*>& chosen) const {
    for (const Graph* graph : chosen) {
      fmt::print("{}: {} nodes, {}, {} in, {} out\n", graph->name, graph->nodes.size(),
                 FormatFlops(FlopsOf(*graph)), FormatBytes(Bytes(*graph, graph->inputs)),
                 FormatBytes(Bytes(*graph, graph->outputs)));
    }
    fmt::print("parameters: {}\n", FormatBytes(ParameterBytes(graphs)));
    if (graphs.backward_weight.name.empty()) return;
    const StageProgram program = MakeStageProgram(graphs);
    fmt::print("a microbatch holds {} between F and B, {} between I and W\n",
               FormatBytes(program.saved_bytes), FormatBytes(program.live_bytes));
  }

  void PrintJson(const StageGraphs& graphs, const std::vector<const Graph*>& chosen) const {
    Json object;
    object["stage"] = stage_;
    object["parameter_bytes"] = ParameterBytes(graphs);
    if (!graphs.backward_weight.name.empty()) {
      const StageProgram program = MakeStageProgram(graphs);
      object["saved_bytes"] = program.saved_bytes;
      object["live_bytes"] = program.live_bytes;
    }
    object["graphs"] = Json::array();
    for (const Graph* graph : chosen) {
      object["graphs"].push_back({{"name", graph->name},
                                  {"nodes", graph->nodes.size()},
                                  {"flops", FlopsOf(*graph)},
                                  {"input_bytes", Bytes(*graph, graph->inputs)},
                                  {"output_bytes", Bytes(*graph, graph->outputs)},
                                  {"text", dot_ ? PrintDot(*graph) : PrintGraph(*graph)}});
    }
    fmt::print("{}\n", object.dump(2));
  }

  std::string config_;
  std::vector<std::string> overrides_;
  int stage_ = 0;
  std::string only_;
  CompileOptions options_;
  bool inexact_ = false;
  bool shapes_only_ = false;
  bool dot_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeGraphCommand() { return std::make_unique<GraphCommand>(); }

}  // namespace penstock
