// penstock generate: generates text with a trained model.
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/command/command.h"
#include "cli/help/offered_values.h"
#include "cli/options/option_name.h"
#include "cli/output/print_json.h"
#include "cli/start_engine/engine_table.h"
#include "monitor/run_names.h"
#include "train/train.h"

namespace penstock {
namespace {

class GenerateCommand final : public Command {
 public:
  std::string Name() const override { return kGenerateEntry.name; }
  std::string Summary() const override { return kGenerateEntry.summary; }

  void Define(CLI::App& app) override {
    Offer(app.add_option("CHECKPOINT", checkpoint_,
                         "A run's name or folder, a checkpoint file, or a folder with a model in "
                         "Hugging Face's format"),
          [] { return OfferedRuns(OfferedPaths::kFiles); })
        ->required();
    app.add_option("--prompt", options_.prompt, "Start of the text")->type_name("TEXT");
    app.add_option("--tokens,--bytes", options_.tokens,
                   "Number of tokens (bytes) to generate (default 300)");
    app.add_option("--temperature", options_.temperature,
                   "0 takes the most likely token; higher values vary more (default 0.8)");
    app.add_option("--top-k", options_.top_k,
                   "Choose among the k most likely tokens only (default 0: all)");
    app.add_option(
        "--top-p", options_.top_p,
        "Choose among the most likely tokens whose probabilities add up to this (default "
        "1: all)");
    app.add_option("--seed", options_.seed, "Seed of the random choices (default 1)");
    app.add_flag("--ema", options_.ema,
                 "Use the moving average of the weights, of a run with optimizer.ema");
    app.add_flag("--json", json_, "Print one JSON object");
  }

  Result<int> Run() override {
    PENSTOCK_TRY(checkpoint_, PathOrRun(checkpoint_));
    Result<GeneratedText> generated = GenerateText(checkpoint_, options_);
    if (!generated) {
      Error error = std::move(generated).error();
      if (!error.parameter.empty()) error.parameter = OptionName(error.parameter);
      return tl::unexpected(std::move(error));
    }
    for (const std::string& note : generated->notes) Log(stderr, "penstock: {}\n", note);
    if (json_) {
      PrintObject({{"prompt", options_.prompt},
                   {"text", generated->text},
                   {"tokenizer", generated->tokenizer}});
    } else {
      fmt::print("{}{}\n", options_.prompt, generated->text);
    }
    return kExitOk;
  }

 private:
  std::string checkpoint_;
  GenerateOptions options_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeGenerateCommand() { return std::make_unique<GenerateCommand>(); }

}  // namespace penstock
