// penstock export: a trained model in Hugging Face's format.
#include "cli/command/command.h"
#include "cli/help/offered_values.h"
#include "cli/start_engine/engine_table.h"
#include "monitor/run_names.h"
#include "train/train.h"

namespace penstock {
namespace {

class ExportCommand final : public Command {
 public:
  std::string Name() const override { return kExportEntry.name; }
  std::string Summary() const override { return kExportEntry.summary; }

  void Define(CLI::App& app) override {
    Offer(app.add_option("CHECKPOINT", checkpoint_, "A run's name or folder, or a checkpoint file"),
          [] { return OfferedRuns(OfferedPaths::kFiles); })
        ->required();
    app.add_flag("--ema", ema_,
                 "Use the moving average of the weights, of a run with optimizer.ema");
    app.add_option("-o,--output", folder_,
                   "Folder to write config.json, model.safetensors and the tokenizer to")
        ->required()
        ->type_name("FOLDER");
  }

  Result<int> Run() override {
    PENSTOCK_TRY(checkpoint_, PathOrRun(checkpoint_));
    PENSTOCK_TRY(const std::vector<std::string> files,
                 ExportHuggingFace(checkpoint_, folder_, ema_));
    for (const std::string& file : files) fmt::print("{}\n", file);
    return kExitOk;
  }

 private:
  std::string checkpoint_;
  std::string folder_;
  bool ema_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeExportCommand() { return std::make_unique<ExportCommand>(); }

}  // namespace penstock
