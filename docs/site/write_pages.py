#!/usr/bin/env python3
"""docs/site/write_pages.py ROOT PAGES HEADERS PROGRAM   writes what Sphinx and Doxygen read.

PAGES gets the repository's pages in the same folders as in the repository, so that their links work, and the
generated pages of the reference. HEADERS gets the public headers with comments for Doxygen. PROGRAM is penstock.
"""

import importlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import headers as public

PYTHON_MODULES = {
    "penstock": "Schedules, validation, simulation and reports. It needs no torch.",
    "penstock.torch": "Training of PyTorch modules, and torch's own runtime. It needs the extra `torch`.",
    "penstock.megatron": "Schedules in Megatron-LM, and splits of a model in the form that it reads.",
    "penstock.tensorboard": "The metrics of a training run, for TensorBoard.",
}
_LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)]*)?\))")


class Site:
    """Writes the pages of one repository."""

    def __init__(self, root: pathlib.Path, pages: pathlib.Path):
        self.root = root
        self.pages = pages

    def write(self, path: str, text: str) -> None:
        """Writes a page, whose path is relative to PAGES."""
        target = self.pages / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.rstrip("\n") + "\n")

    def copy_page(self, path: str, as_path: str | None = None, options: str = "") -> None:
        """Copies a Markdown page, with these options of Sphinx before it, and the files other than pages that it links to."""
        text = (self.root / path).read_text()
        folder = pathlib.Path(as_path or path).parent
        self.write(as_path or path, options + _LINK.sub(lambda link: self._staged(path, folder, link), text))

    def _staged(self, page: str, folder: pathlib.Path, link: re.Match) -> str:
        target = ((self.root / page).parent / link[2]).resolve()
        relative = target.relative_to(self.root)
        url = os.path.relpath(relative, folder)
        if target.is_dir():  # GitHub shows a folder and its README; the site has a page with that, or with its files
            if (target / "README.md").exists():
                self.copy_page(f"{relative}/README.md", f"{relative}.md", "---\norphan: true\n---\n")
            else:
                self._write_folder(relative)
            url += ".md"
        elif target.is_file() and target.suffix not in (".md", ".ipynb"):
            (self.pages / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, self.pages / relative)
        return f"{link[1]}{url}{link[3]}"

    def _write_folder(self, folder: pathlib.Path) -> None:
        languages = {".cpp": "cpp", ".h": "cpp", ".yaml": "yaml", ".txt": "cmake"}
        lines = ["---", "orphan: true", "---", f"# {folder}", ""]
        for path in sorted((self.root / folder).iterdir()):
            text = path.read_text().rstrip("\n")
            lines += [f"## {path.name}", "", f"```{{code-block}} {languages.get(path.suffix, 'none')}", text, "```", ""]
        self.write(f"{folder}.md", "\n".join(lines))

    def write_headers(self, staged: pathlib.Path) -> None:
        """Writes the pages of the C++ API, one per folder of src/, and the headers that Doxygen reads."""
        names = public.public_headers(self.root)
        for name in names:
            target = staged / "penstock" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(public.for_doxygen(public.source(self.root, name).read_text()))
        for folder, title in public.SECTIONS.items():
            lines = [f"# {title}", "", "```{cpp:namespace} penstock", "```", ""]
            own = [name for name in names if name.split("/")[0] == folder and name.endswith(".h")]
            for name in own:
                # Breathe finds a header by its last part, which is therefore unique.
                lines += [f"## `<penstock/{name}>`", "", f"```{{doxygenfile}} {pathlib.Path(name).name}", "```", ""]
            self.write(f"reference/cpp/{folder}.md", "\n".join(lines))
        toctree = "\n".join(f"cpp/{folder}" for folder in public.SECTIONS)
        self.write("reference/cpp.md", CPP_PAGE.format(toctree=toctree))

    def write_commands(self, program: str) -> None:
        """Writes the pages of the command line: the help of each command."""
        overview = help_of(program)
        commands = re.findall(r"^  (\w+)  +(\S.*)$", overview.partition("Commands:")[2], re.MULTILINE)
        commands = [(name, summary) for name, summary in commands if name not in ("help", "version")]
        for name, summary in commands:
            text = help_of(program, name).removeprefix(f"{summary}\n").lstrip("\n")
            self.write(f"reference/commands/{name}.md",
                       f"# penstock {name}\n\n{summary}.\n\n```{{code-block}} none\n{text}```\n")
        table = "\n".join(f"| [{name}](commands/{name}.md) | {summary} |" for name, summary in commands)
        toctree = "\n".join(f"commands/{name}" for name, _ in commands)
        self.write("reference/command_line.md", COMMANDS_PAGE.format(table=table, toctree=toctree))

    def write_python(self) -> None:
        """Writes the pages of the Python API, one per module that is installed."""
        modules = [name for name in PYTHON_MODULES if importlib.util.find_spec(name)]
        for name in modules:
            text = f"# {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n```\n"
            self.write(f"reference/python/{name}.md", text + (constants_page() if name == "penstock" else ""))
        table = "\n".join(f"| [{name}](python/{name}.md) | {PYTHON_MODULES[name]} |" for name in modules)
        toctree = "\n".join(f"python/{name}" for name in modules)
        self.write("reference/python.md", PYTHON_PAGE.format(table=table, toctree=toctree))


CPP_PAGE = """# C++ API

The installed headers, by folder. [Penstock as a library](../docs/library.md) says how to build and link, and what
each header is for. All declarations are in namespace `penstock`.

```{{toctree}}
:maxdepth: 2

{toctree}
```
"""
COMMANDS_PAGE = """# Command line

`penstock COMMAND --help` prints these pages, and `penstock man COMMAND` the same as a manual page. In a clone,
`./run COMMAND` builds the program and runs the command.

| command | |
| --- | --- |
{table}

```{{toctree}}
:hidden:

{toctree}
```
"""
PYTHON_PAGE = """# Python API

| module | |
| --- | --- |
{table}

```{{toctree}}
:hidden:

{toctree}
```
"""


def constants_page() -> str:
    """Returns the section of the package's constants, which Sphinx documents only in the module that defines them."""
    package, module = importlib.import_module("penstock"), importlib.import_module("penstock.actions")
    names = [name for name in package.__all__ if name.isupper() and hasattr(module, name)]
    directives = "\n".join(f".. autodata:: penstock.actions.{name}\n   :no-value:\n" for name in names)
    return ("\n## Constants\n\nThey are also names of `penstock`.\n\n"
            f"```{{eval-rst}}\n{directives}```\n")


def help_of(program: str, *command: str) -> str:
    """Returns what `penstock COMMAND --help` prints."""
    run = subprocess.run([program, *command, "--help"], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"docs/site: '{program} {' '.join(command)} --help' failed: {run.stderr.strip()}")
    return run.stdout


def main() -> None:
    """Writes everything."""
    root, pages, staged, program = sys.argv[1:]
    site = Site(pathlib.Path(root).resolve(), pathlib.Path(pages))
    for folder in (site.pages, pathlib.Path(staged)):
        shutil.rmtree(folder, ignore_errors=True)
    site.copy_page("docs/site/index.md", "index.md")
    for page in ("README.md", "CONTRIBUTING.md"):
        site.copy_page(page)
    for page in sorted((site.root / "docs").glob("*.md")):
        site.copy_page(f"docs/{page.name}")
    shutil.copytree(site.root / "docs/pictures", site.pages / "docs/pictures", dirs_exist_ok=True)
    (site.pages / "examples/notebooks").mkdir(parents=True, exist_ok=True)
    for notebook in sorted((site.root / "examples/notebooks").glob("*.ipynb")):
        shutil.copyfile(notebook, site.pages / "examples/notebooks" / notebook.name)
    site.write_headers(pathlib.Path(staged))
    site.write_commands(program)
    site.write_python()


if __name__ == "__main__":
    main()
