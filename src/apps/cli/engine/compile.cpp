// penstock compile: writes a model's stage programs, so that runs start without capturing.
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/definitions/definitions.h"
#include "cli/output/print_json.h"
#include "config/train_config.h"
#include "train/compiled/compile_stages.h"
#include "train/data/run_tokenizer.h"
#include "train/huggingface/follow_weights.h"

namespace penstock {
namespace {

class CompileCommand final : public EngineRun<CompileDefinition> {
 public:
  Result<int> Run() override {
    PENSTOCK_TRY(TrainConfig config, LoadTrainConfig(config_, overrides_));
    auto code = RunWith(config);
    if (!code) return tl::unexpected(Located(std::move(code).error(), config));
    return code;
  }

 private:
  Result<int> RunWith(TrainConfig& config) {
    PENSTOCK_TRY_STATUS(FollowWeights(config));
    PENSTOCK_TRY_STATUS(SetDocumentEnd(config));
    const auto begin = std::chrono::steady_clock::now();
    PENSTOCK_TRY(const auto files, CompileStages(config, folder_));
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (const CompiledStageFile& file : files) {
      const StageProgram& program = file.program;
      const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(file.path));
      array.push_back({{"file", file.path},
                       {"bytes", bytes},
                       {"nodes_forward", program.forward.graph.nodes.size()},
                       {"nodes_backward_input", program.backward_input.graph.nodes.size()},
                       {"nodes_backward_weight", program.backward_weight.graph.nodes.size()},
                       {"saved_bytes", program.saved_bytes},
                       {"live_bytes", program.live_bytes}});
      if (json_) continue;
      fmt::print("{}: {}, {} + {} + {} calls\n", file.path, FormatBytes(bytes),
                 program.forward.graph.nodes.size(), program.backward_input.graph.nodes.size(),
                 program.backward_weight.graph.nodes.size());
    }
    if (json_) {
      PrintObject({{"stages", std::move(array)}});
    } else {
      fmt::print("{} stages in {}\n", files.size(), FormatSeconds(time.count()));
    }
    return kExitOk;
  }
};

}  // namespace

std::unique_ptr<Command> MakeCompileCommand() { return std::make_unique<CompileCommand>(); }

}  // namespace penstock
