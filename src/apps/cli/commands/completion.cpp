// penstock completion: prints the scripts by which shells complete the program's arguments, and
// answers them.
#include <algorithm>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "cli/commands.h"
#include "cli/help/offered_values.h"
#include "cli/shell/complete.h"
#include "cli/shell/completion_scripts.h"

namespace penstock {
namespace {

constexpr std::string_view kAnswer = "words";

std::vector<std::string_view> ShellNames() {
  std::vector<std::string_view> names;
  for (const CompletionScript& script : CompletionScripts()) names.push_back(script.shell);
  return names;
}

// One line per word, with its meaning after a tab. A last line ":files N" or ":folders N" asks for
// paths from the word's character N on.
std::string AnswerText(const Completions& completions) {
  std::string text;
  for (const OfferedValue& word : completions.words) {
    text += fmt::format("{}\t{}\n", word.text, word.meaning);
  }
  if (completions.paths == OfferedPaths::kNone) return text;
  const bool files = completions.paths == OfferedPaths::kFiles;
  return text + fmt::format(":{} {}\n", files ? "files" : "folders", completions.path_begin);
}

class CompletionCommand final : public Command {
 public:
  std::string Name() const override { return "completion"; }
  std::string Summary() const override {
    return "Print a script that completes arguments in bash, zsh or fish";
  }

  void Define(CLI::App& app) override {
    Offer(app.add_option("SHELL", shell_,
                         "Whose script to print: bash, zsh or fish; or 'words': print what "
                         "completes the last WORD"),
          ShellNames())
        ->required();
    app.add_option("WORD", words_, "After 'words --': the arguments up to the cursor");
    app.footer(
        "For the present shell: source <(penstock completion bash), likewise with zsh, or "
        "penstock completion fish | source. 'cmake --install' installs the scripts where shells "
        "find them. A script asks the program: each line of its answer is a word, with its meaning "
        "after a tab; a last line ':files N' or ':folders N' asks for paths from character N of "
        "the last WORD on.");
  }

  Result<int> Run() override {
    if (shell_ == kAnswer) return Answer();
    if (!words_.empty()) {
      return InvalidArgument("unexpected argument {}: only 'penstock completion words' takes more",
                             Quote(words_.front()));
    }
    for (const CompletionScript& script : CompletionScripts()) {
      if (script.shell != shell_) continue;
      fmt::print("{}", script.text);
      return kExitOk;
    }
    return InvalidArgument("there is no completion for {}: give bash, zsh or fish{}", Quote(shell_),
                           Suggestion(shell_, ShellNames()));
  }

 private:
  Result<int> Answer() const {
    fmt::print("{}", AnswerText(Complete(Commands(), words_)));
    return kExitOk;
  }

  std::string shell_;
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> MakeCompletionCommand() { return std::make_unique<CompletionCommand>(); }

}  // namespace penstock
