// penstock completion: prints the scripts by which shells complete the program's arguments, and
// answers them.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "cli/command/command.h"
#include "cli/commands.h"
#include "cli/help/help.h"
#include "cli/help/offered_values.h"

namespace penstock {
namespace {

// A script asks the program itself ('penstock completion words'), so that it fits every version of
// it.
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

struct Completions {
  std::vector<OfferedValue> words;  // whole words that begin as the last one does
  OfferedPaths paths = OfferedPaths::kNone;
  std::size_t path_begin = 0;  // where in the last word the path begins
};

bool TakesSeveral(const CLI::Option& option) {
  return option.get_expected_max() >= CLI::detail::expected_max_vector_size;
}

bool IsOption(const std::string& word) { return word.size() > 1 && word.front() == '-'; }

// The words before the last one, as far as they determine what the last one is.
struct Parsed {
  CLI::Option* awaited = nullptr;  // the option whose value follows
  bool only_value = false;         // whether nothing but that value may follow
  std::size_t positionals = 0;
  bool ended = false;  // by "--": options cannot follow
};

// Returns the option that the word names, without a value; otherwise null.
CLI::Option* OptionNamed(CLI::App& app, const std::string& word) {
  return IsOption(word) ? app.get_option_no_throw(word) : nullptr;
}

Parsed Parse(CLI::App& app, const std::vector<std::string>& words) {
  Parsed parsed;
  for (const std::string& word : words) {
    if (parsed.only_value) {
      parsed.only_value = false;
      if (!parsed.awaited->get_allow_extra_args()) parsed.awaited = nullptr;
    } else if (!parsed.ended && word == "--") {
      parsed.ended = true;
      parsed.awaited = nullptr;
    } else if (!parsed.ended && IsOption(word)) {
      CLI::Option* const option = OptionNamed(app, word);
      const bool has_value = option != nullptr && !ValueName(*option).empty();
      parsed.awaited = has_value ? option : nullptr;
      parsed.only_value = has_value;
    } else if (parsed.awaited == nullptr) {
      ++parsed.positionals;
    }
  }
  return parsed;
}

CLI::Option* Positional(CLI::App& app, std::size_t index) {
  CLI::Option* last = nullptr;
  for (CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    last = option;
    if (index == 0 || TakesSeveral(*option)) return option;
    --index;
  }
  return index == 0 ? last : nullptr;
}

// Adds the values that begin as `word` does from `begin` on. A value "KEY=VALUE" is offered once
// the word has its key.
void AddValues(CLI::Option& option, const std::string& word, std::size_t begin,
               Completions& completions) {
  const OfferedValues offered = ValuesOf(option);
  completions.paths = offered.paths;
  completions.path_begin = begin;
  if (offered.in_list) begin = std::max(begin, word.rfind(',') + 1);
  const std::string kept = word.substr(0, begin);
  const std::string part = word.substr(begin);
  const bool has_key = part.find('=') != std::string::npos;
  for (const OfferedValue& value : offered.values) {
    const std::size_t equals = value.text.find('=');
    if (!value.text.starts_with(part)) continue;
    if (equals != std::string::npos && (equals + 1 < value.text.size()) != has_key) continue;
    completions.words.push_back({kept + value.text, value.meaning});
  }
  // After a key without offered values: of 'data.path=' a path is as likely as anything else.
  const std::size_t equals = part.find('=');
  if (equals == std::string::npos || !completions.words.empty()) return;
  const bool is_key = std::ranges::any_of(offered.values, [&](const OfferedValue& value) {
    return value.text == part.substr(0, equals + 1);
  });
  if (!is_key) return;
  completions.paths = OfferedPaths::kFiles;
  completions.path_begin = begin + equals + 1;
}

void AddOptions(CLI::App& app, const std::string& word, Completions& completions) {
  for (const CLI::Option* option : app.get_options()) {
    std::vector<std::string> names;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (std::string& name : names) {
      if (name.starts_with(word)) {
        completions.words.push_back({std::move(name), option->get_description()});
      }
    }
  }
}

Completions CompleteArgument(Command& command, const std::vector<std::string>& before,
                             const std::string& word) {
  const std::unique_ptr<CLI::App> app = AppOf(command);
  const Parsed parsed = Parse(*app, before);
  Completions completions;
  const std::size_t equals = word.find('=');
  const bool is_option = !parsed.ended && !parsed.only_value && word.starts_with('-');
  if (is_option && equals == std::string::npos) {
    AddOptions(*app, word, completions);
  } else if (is_option) {
    CLI::Option* const option = OptionNamed(*app, word.substr(0, equals));
    if (option != nullptr) AddValues(*option, word, equals + 1, completions);
  } else if (parsed.awaited != nullptr) {
    AddValues(*parsed.awaited, word, 0, completions);
  } else if (CLI::Option* const positional = Positional(*app, parsed.positionals)) {
    AddValues(*positional, word, 0, completions);
  } else if (app->get_prefix_command()) {
    // The words of another program follow.
    if (!parsed.ended && word.empty()) completions.words.push_back({"--"});
    if (parsed.ended) completions.paths = OfferedPaths::kFiles;
  }
  return completions;
}

// `words` follow the program's name; the last one, which may be empty, is to be completed.
Completions Complete(const std::vector<std::unique_ptr<Command>>& commands,
                     const std::vector<std::string>& words) {
  Completions completions;
  const bool help = words.size() == 2 && words.front() == "help";
  if (words.size() <= 1 || help) {
    const std::string word = words.empty() ? "" : words.back();
    for (const HelpGroup& group : CommandGroups(commands)) {
      for (const auto& [name, summary] : group.entries) {
        if (name.starts_with(word)) completions.words.push_back({name, summary});
      }
    }
    if (help) return completions;
    for (const char* option : {"--help", "--version"}) {
      if (word.starts_with('-') && std::string_view(option).starts_with(word)) {
        completions.words.push_back({option});
      }
    }
    return completions;
  }
  for (const auto& command : commands) {
    if (command->Name() != words.front()) continue;
    return CompleteArgument(*command, {words.begin() + 1, words.end() - 1}, words.back());
  }
  return completions;
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
