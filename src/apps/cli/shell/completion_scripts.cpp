#include "cli/shell/completion_scripts.h"

namespace penstock {
namespace {

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

}  // namespace

const std::vector<CompletionScript>& CompletionScripts() {
  static const auto& scripts =
      *new std::vector<CompletionScript>{{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};
  return scripts;
}

}  // namespace penstock
