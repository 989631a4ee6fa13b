// penstock eval: the held-out loss of a trained model and of the bigram baseline.
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/engine_table.h"
#include "train/train.h"

namespace penstock {
namespace {

class EvalCommand final : public Command {
 public:
  std::string Name() const override { return kEvalEntry.name; }
  std::string Summary() const override { return kEvalEntry.summary; }

  void Define(CLI::App& app) override {
    app.add_option("CHECKPOINT", checkpoint_, "A run's folder, or a checkpoint file")->required();
    app.add_option("--data", data_, "A text file or a folder of text files (default: the run's)")
        ->type_name("PATH");
    app.add_flag("--json", json_, "Print one JSON object");
  }

  Result<int> Run() override {
    PENSTOCK_TRY(const EvalSummary summary, Evaluate(checkpoint_, data_));
    if (json_) {
      const nlohmann::ordered_json object = {{"held_out_loss", summary.held_out_loss},
                                             {"baseline_loss", summary.baseline_loss},
                                             {"bytes", summary.bytes},
                                             {"step", summary.step}};
      fmt::print("{}\n", object.dump(2));
    } else {
      fmt::print(
          "held-out loss {:.4f} nats per byte over {} bytes, after {} steps; a bigram model of "
          "the same text {:.4f}\n",
          summary.held_out_loss, summary.bytes, summary.step, summary.baseline_loss);
    }
    return kExitOk;
  }

 private:
  std::string checkpoint_;
  std::string data_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeEvalCommand() { return std::make_unique<EvalCommand>(); }

}  // namespace penstock
