"""Completion in real shells, and manual pages: both offer what --help lists."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import program

SHELLS = ("bash", "zsh", "fish")
# Loads the script, completes the words up to the cursor, and prints one line per completion.
BASH = """
source <(penstock completion bash)
eval "$(printf 'COMP_WORDS=(%s)' "$1")"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_penstock
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = """
penstock completion fish | source
complete -C "$argv[1]"
"""
# Types a line in an interactive zsh, presses Tab, and prints what the line is then.
ZSH = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
send() { zpty -w shell "$1"; }
send 'PROMPT=; RPROMPT='
send 'autoload -Uz compinit; fpath=($PWD $fpath); compinit -u -D'
send "$2"
send 'finish() { zle complete-word; print -r -- "$BUFFER" >line.txt; BUFFER=; zle accept-line; }'
send 'zle -N finish; bindkey "^X" finish'
send 'print ready >ready.txt'
for i in {1..300}; do [[ -s ready.txt ]] && break; sleep 0.1; done
zpty -w -n shell "$1"$'\x18'
for i in {1..300}; do [[ -s line.txt ]] && break; sleep 0.1; done
zpty -d shell
cat line.txt
"""


# What else an option of a model needs.
GPT = ("--model", "gpt2", "--ranks", "4")
OF_MODELS = {option: GPT for option in ("--device", "--implementation", "--attention", "--cuda-graphs", "--dispatcher")}
OF_MODELS["--precision"] = (*GPT, "--implementation", "transformer-engine", "--device", "b300")
OF_MODELS["--context-exchange"] = (*GPT, "--context", "2")


def listed(text):
    """The options in the output of --help, with their single-letter forms."""
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*(?=[ ,\n])",
                          "\n".join(re.findall(r"^  (-[^\n]*?)(?:  .*)?$", text, re.MULTILINE)) + "\n"))


class CompletionTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        folder = str(pathlib.Path(program.PROGRAM).parent)
        self.env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(self.folder),
                    "TERM": "dumb", "LC_ALL": "C.UTF-8"}
        self.commands = re.findall(r"^  ([\w-]+)  ", self.run_ok("--help"), re.MULTILINE)
        self.own = [name for name in self.commands if name not in ("help", "version")]

    def shell(self, *words):
        if not shutil.which(words[0]):
            self.skipTest(f"{words[0]} is not installed")
        result = subprocess.run(words, cwd=self.folder, env=self.env, capture_output=True, text=True,
                                timeout=60, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words[-1])
        return result.stdout.splitlines()

    def bash(self, *words):
        return self.shell("bash", "-c", BASH, "bash",
                          " ".join(f"'{word}'" for word in ("penstock", *words)))

    def fish(self, line):
        return [word.partition("\t")[0] for word in self.shell("fish", "-c", FISH, "penstock " + line)]

    def answer(self, *words):
        lines = self.run_ok("completion", "words", "--", *words).splitlines()
        return [line.partition("\t")[0] for line in lines]

    def test_scripts_are_valid(self):
        for shell in SHELLS:
            script = self.run_ok("completion", shell)
            self.write("script", script)
            self.shell(shell, "-n", "script")
            self.assertIn(f"penstock completion {shell}", script)

    def test_every_command_and_option_is_completed(self):
        self.assertEqual(self.answer(""), self.commands)
        self.assertEqual(self.answer("help", ""), self.commands)
        for command in self.own:
            options = listed(self.run_ok(command, "--help"))
            self.assertIn("--help", options)
            self.assertEqual(set(self.answer(command, "-")), options | {"-h"}, command)
            self.assertEqual(set(self.bash(command, "-")), options | {"-h"}, command)

    def test_fish(self):
        self.write("mine.csv", "0F0,0B0\n")
        (self.folder / "folder").mkdir()
        for line, expected in (
                ("sim", ["simulate"]), ("simulate --form", ["--format"]),
                ("simulate --format ", ["csv", "json", "table"]),
                ("simulate --format=j", ["--format=json"]),
                ("simulate dualp", ["dualpipe", "dualpipev"]), ("simulate mi", ["mine.csv"]),
                ("simulate --csv=mi", ["--csv=mine.csv"]),
                ("simulate --pass recompute,of", ["recompute,offload"]),
                ("schedules --docs fo", ["folder/"]), ("simulate --price offl", ["offload="])):
            self.assertEqual(sorted(self.fish(line)), expected, line)

    def zsh(self, line, load="source <(penstock completion zsh)"):
        for name in ("line.txt", "ready.txt"):
            (self.folder / name).unlink(missing_ok=True)
        return self.shell("zsh", "-f", "-c", ZSH, "zsh", "penstock " + line, load)

    def test_zsh(self):
        self.write("mine.csv", "0F0,0B0\n")
        (self.folder / "folder").mkdir()
        for line, expected in (
                ("sim", "simulate "), ("simulate --form", "simulate --format "),
                ("simulate --format=j", "simulate --format=json "),
                ("simulate hana", "simulate hanayo "), ("simulate mi", "simulate mine.csv "),
                ("simulate --csv=mi", "simulate --csv=mine.csv "),
                ("simulate --pass recompute,of", "simulate --pass recompute,offload "),
                ("schedules --docs fo", "schedules --docs folder/"),
                ("simulate --price offl", "simulate --price offload=")):
            self.assertEqual(self.zsh(line), ["penstock " + expected], line)
        # As a file in a folder of $fpath, where 'cmake --install' puts it.
        self.write("_penstock", self.run_ok("completion", "zsh"))
        self.assertEqual(self.zsh("show --expl", load=""), ["penstock show --explain "])

    def test_offered_values_are_accepted(self):
        sizes = ("--layers", "4", "--dim", "64", "--heads", "4", "--vocabulary", "100")
        for option in ("--format", "--objective", "--overlap", "--transfers", "--model", "--device", "--implementation", "--attention",
                       "--cuda-graphs", "--dispatcher", "--context-exchange", "--precision"):
            values = [value for value in self.answer("simulate", option, "") if not value.startswith(":")]
            self.assertGreater(len(values), 1, option)
            for value in values:
                schedule = "v-auto" if option == "--objective" else "1f1b"
                more = ("--pass", "overlap=all") if option == "--overlap" else ()
                more += ("--message-bytes", "1MiB") if option == "--transfers" else ()
                more += ("--ranks", "4") if option == "--model" else ()
                more += sizes if value in ("decoder", "gpt") else ()
                more += OF_MODELS.get(option, ())
                self.run_ok("simulate", schedule, option, value, *more)
        for value in self.answer("show", "--color", ""):
            self.run_ok("show", "1f1b", "--color", value)
        for row in self.run_rows("schedules"):
            self.assertIn(row["name"], self.answer("show", ""))
        listing = json.loads(self.run_ok("schedules", "--passes", "--json"))
        self.assertEqual(self.answer("show", "--pass", ""), [row["name"] for row in listing["passes"]])
        self.assertEqual(self.answer("show", "--price", ""), [row["key"] + "=" for row in listing["prices"]])


class ManTest(program.CommandTest):
    def rendered(self, page):
        if not shutil.which("groff"):
            self.skipTest("groff is not installed")
        result = subprocess.run(["groff", "-k", "-man", "-Tutf8", "-ww", "-rHY=0", "-rLL=100n", "-P-c", "-P-b",
                                 "-P-u", self.folder / page], capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(result.stderr, "", page)
        return result.stdout

    def test_pages_have_what_help_lists(self):
        self.run_ok("man", "--directory", ".")
        names = re.findall(r"^  ([\w-]+)  ", self.run_ok("--help"), re.MULTILINE)
        commands = [name for name in names if name not in ("help", "version")]
        self.assertEqual(self.files(), sorted(["penstock.1"] + [f"penstock-{name}.1" for name in commands]))
        text = self.rendered("penstock.1")
        for name in names:
            self.assertRegex(text, rf"(?m)^ +{name}\b")
        for command in commands:
            text = self.rendered(f"penstock-{command}.1")
            help_text = self.run_ok(command, "--help")
            for option in listed(help_text):
                self.assertRegex(text, rf"(?m)^ +(-\w, |--[\w-]+, )*{option}\b", command)
            words = " ".join(text.split())
            for line in re.findall(r"^  \S.*?  +(\S.*)$", help_text, re.MULTILINE):
                self.assertIn(line, words, command)
            self.assertRegex(words, r"EXIT STATUS 0 \w.* 1 \w.* 2 \w")
            self.assertEqual(self.run_ok("man", command), (self.folder / f"penstock-{command}.1").read_text())


if __name__ == "__main__":
    program.main()
