// penstock graph: prints the graphs of a model's stage, as captured or after any pass.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/units.h"
#include "cli/definitions/definitions.h"
#include "cli/engine/collectives_json.h"
#include "cli/output/print_json.h"
#include "config/train_config.h"
#include "graph/analysis/node_costs.h"
#include "graph/capture/shapes_only.h"
#include "graph/count_collectives.h"
#include "graph/ir/flops.h"
#include "graph/ir/print.h"
#include "graph/passes/pass_observer.h"
#include "graph/passes/passes.h"
#include "graph/passes/split_collectives.h"
#include "graph/run/memory_plan.h"
#include "train/compiled/compile_stages.h"
#include "train/data/run_tokenizer.h"
#include "train/huggingface/follow_weights.h"

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

// A value that a microbatch holds between two actions.
struct Held {
  ValueId value;
  TensorType type;
  std::string made_by;  // op, or where it comes from

  std::int64_t bytes() const { return BytesOf(type); }
};

// The values of earlier actions that `readers` read, largest first.
std::vector<Held> HeldFor(const StageGraphs& graphs, const std::vector<const Graph*>& readers) {
  std::map<ValueId, std::string> makers;
  for (const ValueId input : graphs.forward.inputs) makers[input] = "the stage's input";
  for (const Graph* graph : {&graphs.forward, &graphs.backward_input}) {
    for (const Node& node : graph->nodes) {
      for (const ValueId output : node.outputs) {
        makers.emplace(output, c10::toString(node.op.operator_name()));
      }
    }
  }
  std::map<ValueId, Held> held;
  for (const Graph* reader : readers) {
    for (const ValueId input : reader->inputs) {
      const auto maker = makers.find(input);
      const std::string made_by = maker == makers.end() ? "the output's gradient" : maker->second;
      held[input] = {input, reader->value(input).type, made_by};
    }
  }
  std::vector<Held> list;
  for (auto& [value, entry] : held) list.push_back(std::move(entry));
  std::stable_sort(list.begin(), list.end(),
                   [](const Held& a, const Held& b) { return a.bytes() > b.bytes(); });
  return list;
}

// Values held from F on: all that I and W read, except values that I computes and the gradients.
std::vector<Held> HeldFromForward(const StageGraphs& graphs) {
  std::vector<Held> held = HeldFor(graphs, {&graphs.backward_input, &graphs.backward_weight});
  const auto is_later = [&](const Held& each) {
    const auto among = [&](const std::vector<ValueId>& values) {
      return std::find(values.begin(), values.end(), each.value) != values.end();
    };
    return among(graphs.joint.output_gradients) || among(graphs.live);
  };
  held.erase(std::remove_if(held.begin(), held.end(), is_later), held.end());
  return held;
}

Json ToJson(const std::vector<Held>& held) {
  Json list = Json::array();
  for (const Held& each : held) {
    list.push_back({{"value", each.value},
                    {"type", PrintType(each.type)},
                    {"bytes", each.bytes()},
                    {"made_by", each.made_by}});
  }
  return list;
}

void Print(const std::vector<Held>& held, std::string_view when) {
  std::int64_t bytes = 0;
  for (const Held& each : held) bytes += each.bytes();
  fmt::print("a microbatch holds {} {}\n", FormatBytes(bytes), when);
  for (const Held& each : held) {
    fmt::print("  %{}: {} {}, {}\n", each.value, PrintType(each.type), FormatBytes(each.bytes()),
               each.made_by);
  }
}

// Seconds of a graph by estimated costs: with whole collectives one after another, and as ordered.
Json PredictedSeconds(const Graph& graph, const NodeCosts& costs) {
  Graph whole = WithWholeCollectives(graph);
  const OrderSeconds seconds = HideCollectives(whole, whole.nodes.size(), Mixing::kFree, costs);
  return {{"in_turn", seconds.in_turn}, {"ordered", seconds.ordered}};
}

// One pass, and how many nodes there are after it.
struct PassTime {
  std::string pass;
  double seconds = 0;
  std::size_t nodes = 0;
};

class GraphCommand final : public EngineRun<GraphDefinition> {
 public:
  Result<int> Run() override {
    PENSTOCK_TRY(TrainConfig config, LoadTrainConfig(config_, overrides_));
    auto code = RunWith(config);
    if (!code) return tl::unexpected(Located(std::move(code).error(), config));
    return code;
  }

 private:
  Result<int> RunWith(TrainConfig& config) {
    options_.stop_after = stop_after_;
    options_.disabled = disabled_;
    options_.exact = !inexact_;
    options_.overlapped = only_ == "overlapped";
    PENSTOCK_TRY(const std::optional<LinkSpeed> link, LinkOf(config.parallel));
    if (link) costs_ = NodeCosts(*link);
    options_.costs = &costs_;
    PENSTOCK_TRY_STATUS(FollowWeights(config));
    PENSTOCK_TRY_STATUS(SetDocumentEnd(config));
    std::optional<ShapesOnly> shapes;
    if (shapes_only_) shapes.emplace();
    std::vector<PassTime> times;
    PENSTOCK_TRY(StageGraphs graphs, TimedGraphs(config, times));
    std::vector<const Graph*> chosen;
    for (const Graph* graph : AllGraphs(graphs)) {
      if (only_.empty() ? IsShown(graphs, *graph) : graph->name == only_) chosen.push_back(graph);
    }
    if (chosen.empty()) {
      return InvalidArgument(
          "there is no graph '{}' here (joint, forward, backward, "
          "backward_input, backward_weight, unshard, reduce_grad, overlapped; only after the pass "
          "that creates it)",
          only_);
    }
    for (const Graph* graph : chosen) {
      PENSTOCK_TRY([[maybe_unused]] const std::int64_t flops, FlopsOf(*graph));
    }
    if (json_) {
      PrintJson(graphs, chosen, times);
      return kExitOk;
    }
    if (timing_) {
      PrintTimes(times);
      return kExitOk;
    }
    for (const Graph* graph : chosen) {
      fmt::print("{}{}", dot_ ? PrintDot(*graph) : PrintGraph(*graph), dot_ ? "" : "\n");
    }
    if (!dot_) PrintSummary(graphs, chosen);
    return kExitOk;
  }

  Result<StageGraphs> TimedGraphs(const TrainConfig& config, std::vector<PassTime>& times) const {
    const ScopedPassObserver observe(
        [&](std::string_view pass, double seconds, StageGraphs& graphs) {
          if (pass.empty()) return;  // before the first
          std::size_t nodes = 0;
          for (const Graph* graph : AllGraphs(graphs)) {
            if (IsShown(graphs, *graph)) nodes += graph->nodes.size();
          }
          times.push_back({std::string(pass), seconds, nodes});
        });
    return GraphsOfStage(config, stage_, options_);
  }

  // Without --graph: the graphs that actions run, or their predecessors if a pass stops earlier.
  static bool IsShown(const StageGraphs& graphs, const Graph& graph) {
    if (graphs.forward.name.empty()) return true;
    if (graph.name == "joint") return false;
    return graphs.backward_input.name.empty() || graph.name != "backward";
  }

  void PrintSummary(const StageGraphs& graphs, const std::vector<const Graph*>& chosen) const {
    for (const Graph* graph : chosen) {
      fmt::print("{}: {} nodes, {}, {} in, {} out, {} at most\n", graph->name, graph->nodes.size(),
                 FormatFlops(FlopsOf(*graph).value()), FormatBytes(Bytes(*graph, graph->inputs)),
                 FormatBytes(Bytes(*graph, graph->outputs)),
                 FormatBytes(PlanMemory(*graph).peak_bytes));
    }
    fmt::print("parameters: {}\n", FormatBytes(ParameterBytes(graphs)));
    if (graphs.backward_weight.name.empty()) return;
    Print(HeldFromForward(graphs), "between F and B");
    Print(HeldFor(graphs, {&graphs.backward_weight}), "between I and W");
  }

  static void PrintTimes(const std::vector<PassTime>& times) {
    double sum = 0;
    fmt::print("{:<22} {:>10} {:>8}\n", "pass", "ms", "nodes");
    for (const PassTime& time : times) {
      fmt::print("{:<22} {:>10.3f} {:>8}\n", time.pass, 1e3 * time.seconds, time.nodes);
      sum += time.seconds;
    }
    fmt::print("{:<22} {:>10.3f}\n", "all", 1e3 * sum);
  }

  void PrintJson(const StageGraphs& graphs, const std::vector<const Graph*>& chosen,
                 const std::vector<PassTime>& times) const {
    Json object;
    object["stage"] = stage_;
    object["parameter_bytes"] = ParameterBytes(graphs);
    if (!graphs.backward_weight.name.empty()) {
      const StageProgram program = MakeStageProgram(graphs);
      object["saved_bytes"] = program.saved_bytes;
      object["live_bytes"] = program.live_bytes;
      object["saved"] = ToJson(HeldFromForward(graphs));
      object["live"] = ToJson(HeldFor(graphs, {&graphs.backward_weight}));
    }
    if (timing_) {
      for (const PassTime& time : times) {
        object["passes"].push_back(
            {{"name", time.pass}, {"seconds", time.seconds}, {"nodes", time.nodes}});
      }
    }
    object["graphs"] = Json::array();
    for (const Graph* graph : chosen) {
      object["graphs"].push_back({{"name", graph->name},
                                  {"nodes", graph->nodes.size()},
                                  {"flops", FlopsOf(*graph).value()},
                                  {"input_bytes", Bytes(*graph, graph->inputs)},
                                  {"output_bytes", Bytes(*graph, graph->outputs)},
                                  {"collectives", ToJson(CountCollectives(*graph))},
                                  {"predicted_seconds", PredictedSeconds(*graph, costs_)},
                                  {"text", dot_ ? PrintDot(*graph) : PrintGraph(*graph)}});
    }
    PrintObject(object);
  }

  CompileOptions options_;
  NodeCosts costs_;
};

}  // namespace

std::unique_ptr<Command> MakeGraphCommand() { return std::make_unique<GraphCommand>(); }

}  // namespace penstock
