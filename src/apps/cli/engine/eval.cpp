// penstock eval: the held-out loss of a trained model and of the bigram baseline.
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/text/option_name.h"
#include "cli/definitions/definitions.h"
#include "cli/output/print_json.h"
#include "model_spec/huggingface_config.h"
#include "monitor/run_names.h"
#include "train/train.h"

namespace penstock {
namespace {

class EvalCommand final : public EngineRun<EvalDefinition> {
 public:
  Result<int> Run() override {
    PENSTOCK_TRY(checkpoint_, PathOrRun(checkpoint_));
    if (IsHuggingFaceFolder(checkpoint_)) return RunOnFolder();
    PENSTOCK_TRY(const EvalSummary summary, Evaluate(checkpoint_, data_, ema_, device_));
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
    const Result<EvalSummary> evaluated =
        EvaluateHuggingFace(checkpoint_, data_, sequence_, device_);
    if (!evaluated) {
      Error error = evaluated.error();
      // An error with a place is about a key of a file.
      const bool is_option = !error.parameter.empty() && error.where.empty();
      if (is_option) error.parameter = OptionName(error.parameter);
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
};

}  // namespace

std::unique_ptr<Command> MakeEvalCommand() { return std::make_unique<EvalCommand>(); }

}  // namespace penstock
