"""Every command block of the pages runs, in the order of its page in one empty folder, and prints the sample that follows it.

A block is a run of indented lines. Lines that begin with "$ " are commands, and what follows each is what it prints; without "$ ", each line
is a command, and a block without commands after one that has a single command is what this one prints. "..." stands for any text, and alone
in a line for any lines. A block that begins with "# FILE" is that file.
"""
import os
import pathlib
import re
import shutil
import subprocess
import textwrap

import program

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
COMMAND = re.compile(r"(\$ |penstock |time penstock |[A-Z]+=|source |grep |cat |\. |\./|tools/|bench/|cmake |mpirun |torchrun |srun |sbatch |pip |python3? |apt-get "
                     r"|tensorboard |ctest |export |ssh |kill |curl |git )")

# Commands that are not run here, by what they begin with or contain, each with the reason.
EXEMPT = {
    r"^(\./run|\./test|tools/|bench/|cmake|pip|apt-get|ctest|git|PENSTOCK_TORCH=)": "builds or installs: minutes",
    r"^(mpirun|torchrun|srun|sbatch|MODULE=|export NCCL|ssh)|pretrain_gpt": "needs several processes, or another framework",
    r"\bpenstock (train|eval|generate|graph|compile|export|check-device|profile|checkpoint|watch|launch)\b": "needs the engine, which readme_test.py and "
                                                                                                           "the tests of the engine run",
    r"runs/|^python|tensorboard|^kill|^curl": "reads a training run",
    r"my\.yaml|zbv --machine machine\.yaml": "reads what 'penstock profile' or a user's configuration says",
    r"^penstock tokenize FILES|FOLDER|NAME|CONFIG\.yaml": "has a placeholder",
    r"man -l|compinit|fish": "needs another program",
    r"--chunks 2 |--trace-rule": "reads traces of another schedule or program than the prepared ones",
    r"--playground": "needs the page that tools/playground builds, which playground_test.py opens",
    r"tables/": "reads tables that bench/run downloads",
    r"model/config\.json|run_train\.sh": "a model of the reader's own, and another framework",
    r"schedules --docs": "docs_test.py runs it",
    r"plan --model llama-3-70b --device h100 --nodes 8x8 --global-batch 512$": "readme_test.py runs it",
    r"plan --model llama-3-70b .*(--sites|--samples|--failures|h100\+a100)": "searches for minutes; plan_model_test.py and others ask for less",
}
# What a page presumes, as commands: a file of the reader's own.
PREPARED = {
    "traces.md": ["mkdir -p traces && cp $ROOT/tests/interop/data/torch_1f1b/* traces/"],
    "megatron.md": ["mkdir recorded && cp $ROOT/tests/interop/data/torch_1f1b/* recorded/",
                    "printf 'time_unit: s\ncomm: 0.001\nlayer_costs:\n  - {layers: 32, forward: 0.01, backward_input: 0.01, backward_weight: 0.01}\n'"
                    " >recorded/measured.yaml"],
    "calibrate.md": ["cp -r $ROOT/examples ."],
    "measured.md": ["cp -r $ROOT/examples ."],
}
# Pages whose commands run elsewhere.
ELSEWHERE = {"tour.md": "readme_test.py runs it and compares what it prints"}


def blocks_of(text):
    """Yields the blocks of a page, indented or fenced as shell or nothing, without indentation, and whether only a blank line precedes each."""
    text = re.sub(r"^```(?:sh)?\n(.*?)^```", lambda found: textwrap.indent(found.group(1), "    ", lambda line: True), text,
                  flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    end = -1
    for block in re.finditer(r"(?:^(?: {4}| {7}).*\n)+", text, re.MULTILINE):
        lines = block.group().splitlines()
        indent = min(len(line) - len(line.lstrip()) for line in lines)
        yield [line[indent:] for line in lines], not text[end:block.start()].strip()
        end = block.end()


def steps_of(text):
    """Yields pairs of a command and the lines that it prints, or None; and for a file its name and lines."""
    pending = None
    for lines, follows in blocks_of(text):
        first = lines[0]
        if pending and not follows:
            yield "command", pending, None
            pending = None
        if re.match(r"# [\w.-]+\.(yaml|csv|txt)$", first):
            yield "file", first[2:], lines[1:]
            continue
        is_transcript = first.startswith("$ ")
        if not COMMAND.match(first):
            if pending:
                yield "command", pending, lines
            pending = None
            continue
        if pending:
            yield "command", pending, None
        pending = None
        commands = list(commands_of(lines, is_transcript))
        for command, shown in commands[:-1]:
            yield "command", command, shown if is_transcript else None
        command, shown = commands[-1]
        if is_transcript or len(commands) > 1:
            yield "command", command, shown if is_transcript else None
        else:
            pending = command
    if pending:
        yield "command", pending, None


def commands_of(lines, is_transcript):
    at = 0
    while at < len(lines):
        command = lines[at].removeprefix("$ ")
        while command.endswith("\\") and at + 1 < len(lines):
            at += 1
            command += "\n" + lines[at].removeprefix("> ")
        at += 1
        end = re.search(r"<<(\w+)$", command)
        while end and at < len(lines) and not command.endswith("\n" + end.group(1)):
            command += "\n" + lines[at]
            at += 1
        shown = []
        while is_transcript and at < len(lines) and not lines[at].startswith("$ "):
            shown.append(lines[at])
            at += 1
        yield command, shown


def pattern_of(shown):
    """Returns the regular expression of a sample."""
    parts = []
    for line in shown:
        if line == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(r".*".join(map(re.escape, line.rstrip().split("..."))) + r" *\n")
    return "".join(parts)


def reason_not_to_run(command):
    return next((why for pattern, why in EXEMPT.items() if re.search(pattern, command)), None)


class PagesTest(program.CommandTest):
    def run_page(self, page):
        """Returns how many commands ran, and the faults."""
        folder = self.folder / page.stem
        folder.mkdir()
        path = f"{pathlib.Path(program.PROGRAM).resolve().parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "ROOT": str(ROOT), "COLUMNS": "200"}
        state = folder.with_suffix(".env")  # the variables that a page sets

        def run(command):
            script = f"set -o pipefail; [ ! -e '{state}' ] || . '{state}'\n{command}\ncode=$?\ndeclare -p | grep -E '^declare -- [A-Z]+=' >'{state}'; exit $code"
            return subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)

        for command in PREPARED.get(page.name, ()):
            run(command)
        ran, faults = 0, []
        for kind, what, lines in steps_of(page.read_text(encoding="utf-8")):
            if kind == "file":
                (folder / what).write_text("\n".join(lines) + "\n")
                continue
            if reason_not_to_run(what):
                continue
            done = run(what)
            ran += 1
            if done.returncode != 0:
                faults.append(f"{page.name}: {what}: {done.stderr.strip()}")
            elif lines and not re.search(r"(?m)^" + pattern_of(lines), done.stdout):
                faults.append(f"{page.name}: {what} prints\n{done.stdout}and the page has\n" + "\n".join(lines))
        shutil.rmtree(folder)
        return ran, faults

    def test_commands_run_and_print_what_the_pages_show(self):
        ran, faults = 0, []
        for page in PAGES:
            if page.name in ELSEWHERE:
                continue
            of_page, wrong = self.run_page(page)
            ran += of_page
            faults += wrong
        self.assertGreaterEqual(ran, 50)
        self.assertEqual(faults, [], "\n\n".join(faults))

    def test_every_exemption_is_needed(self):
        commands = [what for page in PAGES for kind, what, _ in steps_of(page.read_text(encoding="utf-8")) if kind == "command"]
        for pattern in EXEMPT:
            self.assertTrue(any(re.search(pattern, command) for command in commands), pattern)


if __name__ == "__main__":
    program.main()
