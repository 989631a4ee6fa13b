// penstock generate: generates text with a trained model.
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/text/option_name.h"
#include "cli/definitions/definitions.h"
#include "cli/output/print_json.h"
#include "monitor/run_names.h"
#include "train/train.h"

namespace penstock {
namespace {

class GenerateCommand final : public EngineRun<GenerateDefinition> {
 public:
  Result<int> Run() override {
    PENSTOCK_TRY(checkpoint_, PathOrRun(checkpoint_));
    Result<GeneratedText> generated = GenerateText(checkpoint_, options_);
    if (!generated) {
      Error error = std::move(generated).error();
      // An error with a place is about a key of a file.
      const bool is_option = !error.parameter.empty() && error.where.empty();
      if (is_option) error.parameter = OptionName(error.parameter);
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
};

}  // namespace

std::unique_ptr<Command> MakeGenerateCommand() { return std::make_unique<GenerateCommand>(); }

}  // namespace penstock
