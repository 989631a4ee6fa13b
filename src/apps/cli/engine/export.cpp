// penstock export: a trained model in Hugging Face's format.
#include "cli/definitions/definitions.h"
#include "monitor/run_names.h"
#include "train/train.h"

namespace penstock {
namespace {

class ExportCommand final : public EngineRun<ExportDefinition> {
 public:
  Result<int> Run() override {
    PENSTOCK_TRY(checkpoint_, PathOrRun(checkpoint_));
    PENSTOCK_TRY(const std::vector<std::string> files,
                 ExportHuggingFace(checkpoint_, folder_, ema_));
    for (const std::string& file : files) fmt::print("{}\n", file);
    return kExitOk;
  }
};

}  // namespace

std::unique_ptr<Command> MakeExportCommand() { return std::make_unique<ExportCommand>(); }

}  // namespace penstock
