// penstock completion: prints the scripts by which shells complete the program's arguments, and
// answers them.
#include <algorithm>
#include <string_view>
#include <vector>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "cli/commands.h"
#include "cli/help/offered_values.h"
#include "cli/shell/complete.h"

namespace penstock {
namespace {

// A script asks the program itself ('penstock completion words'), so that it fits every version.
struct CompletionScript {
  std::string_view shell, text;
};

// Readline divides words at '=' and ':', and replaces only the last part. The program gets whole
// words and answers with whole words.
constexpr std::string_view kBash =
    R"sh(# bash completion of penstock, printed by 'penstock completion bash'.
# In ~/.bashrc: source <(penstock completion bash)
_penstock() {
  local program=${COMP_WORDS[0]} words=() word glue='' i
  for ((i = 1; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word =~ ^[=:]+$ && ${#words[@]} -gt 0 ]]; then
      words[-1]+=$word glue=1
    elif [[ $glue ]]; then
      words[-1]+=$word glue=''
    else
      words+=("$word")
    fi
  done
  local current=${words[-1]-} answer
  local cut=${current%"${current##*[=:]}"}
  [[ $program == '~'* ]] && program=$HOME${program#'~'}
  mapfile -t answer < <("$program" completion words -- "${words[@]}" 2>/dev/null)
  COMPREPLY=()
  local line begin space=''
  for line in "${answer[@]}"; do
    if [[ $line == :* ]]; then
      begin=${line##* }
      compopt -o filenames 2>/dev/null
      local kind=-f path
      [[ $line == :folders* ]] && kind=-d
      while IFS= read -r path; do
        path=${current:0:begin}$path
        COMPREPLY+=("${path#"$cut"}")
      done < <(compgen "$kind" -- "${current:begin}")
    else
      word=${line%%$'\t'*}
      [[ $word == *= ]] || space=1
      COMPREPLY+=("${word#"$cut"}")
    fi
  done
  [[ $space || ${#COMPREPLY[@]} -eq 0 || ${answer[0]} == :* ]] || compopt -o nospace 2>/dev/null
}
complete -F _penstock penstock
)sh";

constexpr std::string_view kZsh = R"sh(#compdef penstock
# zsh completion of penstock, printed by 'penstock completion zsh'.
# As a file _penstock in a folder of $fpath; or in ~/.zshrc, after compinit:
#   source <(penstock completion zsh)
_penstock() {
  local program=${~words[1]} line word meaning
  local -a before=("${(@Q)words[2,CURRENT-1]}") answer ended open
  answer=("${(@f)$("$program" completion words -- "${before[@]}" "${(Q)PREFIX}" 2>/dev/null)}")
  local paths=''
  for line in "${answer[@]}"; do
    if [[ -z $line ]]; then
      continue
    elif [[ $line == :* ]]; then
      paths=$line
      continue
    fi
    word=${line%%$'\t'*} meaning=${line#*$'\t'}
    word=${word//:/\\:}
    if [[ $word == *= ]]; then
      open+=("$word:$meaning")
    else
      ended+=("$word:$meaning")
    fi
  done
  local found=1
  (( ${#ended} )) && _describe -t values value ended && found=0
  (( ${#open} )) && _describe -t keys key open -S '' && found=0
  if [[ -n $paths ]]; then
    compset -p "${paths##* }"
    if [[ $paths == :folders* ]]; then
      _files -/ && found=0
    else
      _files && found=0
    fi
  fi
  return found
}
if [[ ${funcstack[1]} == _penstock ]]; then
  _penstock "$@"
else
  compdef _penstock penstock
fi
)sh";

constexpr std::string_view kFish =
    R"sh(# fish completion of penstock, printed by 'penstock completion fish'.
# In ~/.config/fish/config.fish: penstock completion fish | source
function __penstock_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program (string replace -r '^~' "$HOME" -- $words[1])
    for line in ($program completion words -- $words[2..-1] "$current" 2>/dev/null)
        if not string match -q ':*' -- $line
            printf '%s\n' $line
            continue
        end
        set -l begin (string split ' ' -- $line)[2]
        set -l kept (string sub -l $begin -- $current)
        set -l path (string sub -s (math $begin + 1) -- $current)
        if string match -q ':folders*' -- $line
            for folder in (__fish_complete_directories "$path" '')
                printf '%s%s\n' "$kept" $folder
            end
        else
            for file in (__fish_complete_path "$path")
                printf '%s%s\n' "$kept" $file
            end
        end
    end
end
complete -c penstock -f -a '(__penstock_complete)'
)sh";

const std::vector<CompletionScript>& CompletionScripts() {
  static const auto& scripts =
      *new std::vector<CompletionScript>{{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};
  return scripts;
}

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
