// penstock eval: the held-out loss of a trained model and of the bigram baseline.
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/command/command.h"
#include "cli/help/offered_values.h"
#include "cli/options/option_name.h"
#include "cli/output/print_json.h"
#include "cli/start_engine/engine_table.h"
#include "model_spec/huggingface_config.h"
#include "monitor/run_names.h"
#include "train/train.h"

namespace penstock {
namespace {

class EvalCommand final : public Command {
 public:
  std::string Name() const override { return kEvalEntry.name; }
  std::string Summary() const override { return kEvalEntry.summary; }

  void Define(CLI::App& app) override {
    Offer(app.add_option("CHECKPOINT", checkpoint_,
                         "A run's name or folder, a checkpoint file, or a folder with config.json "
                         "and weights in Hugging Face's format"),
          [] { return OfferedRuns(OfferedPaths::kFiles); })
        ->required();
    app.add_option(
           "--data", data_,
           "A text file, a folder of text files, or a folder of 'penstock tokenize' (default: "
           "the run's)")
        ->type_name("PATH");
    app.add_option("--sequence", sequence_,
                   "Tokens per window, for a folder with config.json: its whole text is evaluated "
                   "(default 128, or the model's positions if it has fewer)")
        ->check(CLI::Range(1, 1'000'000'000));
    app.add_flag("--ema", ema_,
                 "Use the moving average of the weights, of a run with optimizer.ema");
    app.add_flag("--json", json_, "Print one JSON object");
  }

  Result<int> Run() override {
    PENSTOCK_TRY(checkpoint_, PathOrRun(checkpoint_));
    if (IsHuggingFaceFolder(checkpoint_)) return RunOnFolder();
    PENSTOCK_TRY(const EvalSummary summary, Evaluate(checkpoint_, data_, ema_));
    PrintNotes(summary);
    if (json_) {
      PrintObject({{"held_out_loss", summary.held_out_loss},
                   {"baseline_loss", summary.baseline_loss},
                   {summary.unit + "s", summary.predicted},
                   {"tokenizer", summary.tokenizer},
                   {"step", summary.step},
                   {"units", UnitsOf(summary, {"held_out_loss", "baseline_loss"})}});
    } else {
      fmt::print("held-out loss {:.4f} nats per {} over {} {}s, after {} steps",
                 summary.held_out_loss, summary.unit, summary.predicted, summary.unit,
                 summary.step);
      if (summary.baseline_loss > 0) {
        fmt::print("; a bigram model of the same text {:.4f}", summary.baseline_loss);
      }
      fmt::print("; tokenizer {}\n", summary.tokenizer);
    }
    return kExitOk;
  }

 private:
  static void PrintNotes(const EvalSummary& summary) {
    for (const std::string& note : summary.notes) Log(stderr, "penstock: {}\n", note);
  }

  Result<int> RunOnFolder() {
    if (ema_) return InvalidArgument("--ema: {} has no moving averages", checkpoint_);
    if (data_.empty())
      return InvalidArgument("{} has no text of its own: give --data", checkpoint_);
    const Result<EvalSummary> evaluated = EvaluateHuggingFace(checkpoint_, data_, sequence_);
    if (!evaluated) {
      Error error = evaluated.error();
      if (!error.parameter.empty()) error.parameter = OptionName(error.parameter);
      return tl::unexpected(std::move(error));
    }
    const EvalSummary& summary = *evaluated;
    PrintNotes(summary);
    if (json_) {
      PrintObject({{"held_out_loss", summary.held_out_loss},
                   {summary.unit + "s", summary.predicted},
                   {"tokenizer", summary.tokenizer},
                   {"units", UnitsOf(summary, {"held_out_loss"})}});
    } else {
      fmt::print("loss {:.4f} nats per {} over {} {}s; tokenizer {}\n", summary.held_out_loss,
                 summary.unit, summary.predicted, summary.unit, summary.tokenizer);
    }
    return kExitOk;
  }

  static nlohmann::ordered_json UnitsOf(const EvalSummary& summary,
                                        std::initializer_list<std::string> losses) {
    nlohmann::ordered_json units;
    for (const std::string& loss : losses) units[loss] = "nats per " + summary.unit;
    return units;
  }

  std::string checkpoint_;
  std::string data_;
  std::int64_t sequence_ = 0;  // chosen by the model
  bool json_ = false;
  bool ema_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeEvalCommand() { return std::make_unique<EvalCommand>(); }

}  // namespace penstock
