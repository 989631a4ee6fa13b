// penstock profile: measures what a model's stages cost on this machine and writes them to a file.
#include "train/profile/profile.h"

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/system/machine_load.h"
#include "base/units.h"
#include "cli/definitions/definitions.h"
#include "cli/output/print_json.h"
#include "cli/values/output_folder.h"
#include "tcp/measure_connections.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const StageCosts& costs) {
  return {{"forward", costs.forward},
          {"backward_input", costs.backward_input},
          {"backward_weight", costs.backward_weight},
          {"backward", costs.Backward()},
          {"step", costs.step},
          {"activation_bytes", costs.activation}};
}

Json ToJson(const CostsByDepth& costs) {
  return {{"stage", ToJson(costs.stage)}, {"layer", ToJson(costs.layer)}};
}

Json ToJson(const ConnectionCosts& costs) {
  return {{"latency", costs.latency},
          {"message", costs.message},
          {"all_reduce_latency", costs.all_reduce_latency},
          {"all_reduce_bandwidth", costs.all_reduce_bandwidth}};
}

Json ToJson(const StageProfile& profile) {
  return {{"ranks", profile.ranks},
          {"threads", profile.threads},
          {"cores", profile.cores},
          {"first", ToJson(profile.first)},
          {"middle", ToJson(profile.middle)},
          {"last", ToJson(profile.last)},
          {"message_latency", profile.comm},
          {"message_bytes", profile.message_bytes},
          {"between_threads", ToJson(profile.between_threads)},
          {"between_processes", ToJson(profile.between_processes)},
          {"units",
           {{"forward", "s"},
            {"backward_input", "s"},
            {"backward_weight", "s"},
            {"backward", "s"},
            {"step", "s"},
            {"activation_bytes", "B"},
            {"message_latency", "s"},
            {"message_bytes", "B"},
            {"latency", "s"},
            {"message", "s"},
            {"all_reduce_latency", "s"},
            {"all_reduce_bandwidth", "B/s"}}}};
}

void PrintRow(const char* name, const StageCosts& costs) {
  const auto ms = [](double seconds) { return 1e3 * seconds; };
  fmt::print("{:<20} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>12}\n", name,
             ms(costs.forward), ms(costs.backward_input), ms(costs.backward_weight),
             ms(costs.Backward()), ms(costs.step),
             FormatBytes(static_cast<std::int64_t>(costs.activation)));
}

void PrintConnection(const char* of, double bytes, const ConnectionCosts& costs) {
  fmt::print("between {}: {} for a message of nothing, {} of {}; all-reduce {} and {}/s\n", of,
             FormatSeconds(costs.latency), FormatSeconds(costs.message),
             FormatBytes(static_cast<std::int64_t>(bytes)), FormatSeconds(costs.all_reduce_latency),
             FormatBytes(static_cast<std::int64_t>(costs.all_reduce_bandwidth)));
}

void Print(const StageProfile& profile) {
  fmt::print("\n{:<20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>12}\n", "ms", "F", "I", "W", "B", "update",
             "activations");
  PrintRow("first stage", profile.first.stage);
  PrintRow("  each layer", profile.first.layer);
  PrintRow("middle stage", profile.middle.stage);
  PrintRow("  each layer", profile.middle.layer);
  PrintRow("last stage", profile.last.stage);
  PrintRow("  each layer", profile.last.layer);
  fmt::print("\nfrom the end of an action to its consumer on another rank: {}\n",
             FormatSeconds(profile.comm));
  PrintConnection("threads", profile.message_bytes, profile.between_threads);
  PrintConnection("processes", profile.message_bytes, profile.between_processes);
}

// Measures messages of the pipeline's size, and sums of the gradients of a rank's layers.
Status SetConnections(StageProfile& profile) {
  const CostsByDepth& costs = profile.middle;
  const double layers = static_cast<double>(profile.layers) / profile.ranks;
  PENSTOCK_TRY(const MeasuredConnections measured,
               MeasureConnections(profile.message_bytes,
                                  costs.stage.gradients + layers * costs.layer.gradients));
  profile.between_threads = measured.threads;
  profile.between_processes = measured.processes;
  return {};
}

class ProfileCommand final : public EngineRun<ProfileDefinition> {
 public:
  Result<int> Run() override {
    PENSTOCK_TRY(const TrainConfig config, LoadTrainConfig(config_, overrides_));
    PENSTOCK_TRY_STATUS(CheckFolderOf("--output", path_));
    ProfileOptions options;
    options.log = json_ ? stderr : stdout;
    options.rounds = rounds_;
    const std::string busy = BusyMachine();
    auto profile = ProfileStages(config, options);
    if (!profile) return tl::unexpected(Located(profile.error(), config));
    PENSTOCK_TRY_STATUS(SetConnections(*profile));
    const std::string remark =
        fmt::format("# penstock profile {}: {} ranks with {} threads each on {} cores\n", config_,
                    profile->ranks, profile->threads, profile->cores);
    PENSTOCK_TRY_STATUS(WriteFileAtomically(path_, remark + ToYaml(*profile)));
    if (json_) {
      Json object = ToJson(*profile);
      object["file"] = path_;
      object["busy_machine"] = busy.empty() ? Json() : Json(busy);
      PrintObject(object);
      return kExitOk;
    }
    Print(*profile);
    if (!busy.empty()) fmt::print("{}\n", busy);
    fmt::print("wrote {}\n", path_);
    return kExitOk;
  }
};

}  // namespace

std::unique_ptr<Command> MakeProfileCommand() { return std::make_unique<ProfileCommand>(); }

}  // namespace penstock
