#!/usr/bin/env python3
"""Runs transcripts, which are commands with their expected output: transcripts.py PROGRAM [--update] FILE...

    # A comment says what is asserted. It begins a section, which runs in an empty folder; one with ## continues a section.
    $ cat >a.yaml
    > lines that the command reads
    $ penstock simulate a.yaml | head -n 1
    makespan 33, ...          '...' stands for any text, and alone in a line for any lines
    ! penstock: error: ...    a line on stderr
    [1]                       the exit code, unless it is 0, or 2 after such an error

Bash runs the commands. `penstock` is PROGRAM, $ROOT the folder of the project, and `pick PATH...` (pick.py) prints parts of JSON.
--update replaces expected output that differs from the found one; patterns that still match stay.
"""
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = str(HERE.parents[2])
PRELUDE = f"set -o pipefail; pick() {{ python3 -ISB '{HERE}/pick.py' \"$@\"; }}\n"


class Step:
    """A command: `prose` are the lines before it, `source` its own lines and its input's."""
    def __init__(self, prose, source, expected, line):
        self.prose, self.source, self.expected, self.line = prose, source, expected, line
        self.begins_section = any(each.startswith("# ") for each in prose)
        self.command = "\n".join(each.removeprefix("$ ") for each in source if not is_input(each))
        self.input = "".join(each[2:] + "\n" for each in source if is_input(each))


def is_input(line):
    return line == ">" or line.startswith("> ")


def parse(lines):
    """Returns the steps of a file and the lines after the last one."""
    steps, prose, at = [], [], 0
    while at < len(lines):
        if not lines[at].startswith("$ "):
            if lines[at] and not lines[at].startswith("#"):
                raise ValueError(f"line {at + 1} is neither a comment nor a command")
            prose.append(lines[at])
            at += 1
            continue
        begin = at
        while lines[at].endswith("\\"):
            at += 1
        at += 1
        while at < len(lines) and is_input(lines[at]):
            at += 1
        output = at
        while at < len(lines) and not lines[at].startswith("$ ") and (lines[at - 1] or not lines[at].startswith("#")):
            at += 1
        end = at
        while end > output and not lines[end - 1]:
            end -= 1
        steps.append(Step(prose, lines[begin:output], lines[output:end], begin + 1))
        prose = lines[end:at]
    return steps, prose


def run(step, folder, program):
    """Returns the lines of output of a command, in the form of a transcript."""
    path = f"{program.parent}:{os.environ['PATH']}"
    result = subprocess.run(["bash", "-c", PRELUDE + step.command], cwd=folder, input=step.input, capture_output=True, text=True,
                            errors="replace", timeout=600, check=False, env={**os.environ, "PATH": path, "ROOT": ROOT})
    stdout, errors = ([line.rstrip() for line in text.replace(ROOT, "$ROOT").replace(folder, "$PWD").splitlines()]
                      for text in (result.stdout, result.stderr))
    usual = 2 if errors and errors[-1].startswith("penstock: error: ") else 0
    while stdout and not stdout[-1]:
        stdout.pop()
    return stdout + ["! " + line for line in errors] + [f"[{result.returncode}]"] * (result.returncode != usual)


def pattern(line):
    return "(?:.*\n)*?" if line == "..." else re.escape(line).replace(re.escape("..."), ".*?") + "\n"


def matches(expected, found):
    return re.fullmatch("".join(map(pattern, expected)), "".join(line + "\n" for line in found)) is not None


def updated(expected, found):
    """Returns the found output with what still holds of the expected one."""
    kept = [line if line == "..." or any(matches([line], [each]) for each in found) else
            "".join(difflib.get_close_matches(line, found, 1, 0.5)) for line in expected]
    kept = [line for line in kept if line]
    if "..." in expected and matches(kept, found):
        return kept
    return [next((line for line in expected if line != "..." and matches([line], [each])), each) for each in found]


def check(path, program, update):
    """Runs a file. Returns whether all output is as expected."""
    steps, rest = parse(path.read_text(encoding="utf-8").splitlines())
    failed, lines, holder = 0, [], None
    for step in steps:
        if step.begins_section or holder is None:
            holder = tempfile.TemporaryDirectory(prefix="penstock-cli-")
        found = run(step, holder.name, program)
        if not matches(step.expected, found):
            failed += 1
            print(f"{path}:{step.line}: {step.command}", *difflib.unified_diff(step.expected, found, "expected", "found", lineterm=""), sep="\n")
            step.expected = updated(step.expected, found) if update else step.expected
        lines += step.prose + step.source + step.expected
    if update:
        if [step.expected for step in steps] != [step.expected for step in parse(lines)[0]]:
            raise ValueError(f"{path.name}: some output looks like a command, its input or a comment; filter it")
        path.write_text("\n".join(lines + rest) + "\n", encoding="utf-8")
    print(f"{path.name}: {len(steps)} commands, {failed} with other output")
    return failed == 0


def main():
    update = "--update" in sys.argv
    program, *files = [pathlib.Path(word).resolve() for word in sys.argv[1:] if word != "--update"]
    sys.exit(0 if all([check(path, program, update) for path in files]) else 1)


if __name__ == "__main__":
    main()
