"""The public headers: which they are, and their comments in the form that Doxygen reads."""

import pathlib
import re
import sys
from collections.abc import Iterator

# The sections of the reference, and which folder of src/ each one describes.
SECTIONS = {
    "base": "Errors and basics",
    "schedule": "Schedules",
    "simulate": "Simulator",
    "explain": "Explanations",
    "report": "Reports",
    "interop": "Files of other systems",
    "collective": "Collectives",
    "runtime": "Runtime",
    "graph": "Graphs",
    "checkpoint": "Layouts of tensors",
    "model_spec": "Descriptions of models",
    "model": "Models",
    "config": "Training configuration",
    "train": "Training",
}

_TRAILING = re.compile(r"^(?P<code>.*\S)(?P<gap>\s{2,})// (?P<text>.*)$")
_LEADING = re.compile(r"^(?P<indent>\s*)//(?P<text>| .*)$")
_NAMESPACE = re.compile(r"namespace penstock \{|\}  // namespace penstock$")
_PRIVATE = re.compile(r"( *) private:$")
# An initializer whose elements come from rows of a macro, which Sphinx cannot parse.
_ROWS = re.compile(r" = \{\n#define .*?\n#undef \w+\n\};", re.DOTALL)
_CODE_INDENT = "   "  # of a comment's lines that are code


def public_headers(root: pathlib.Path) -> list[str]:
    """Returns the installed headers as paths in src/, in the order of cmake/PenstockInstall.cmake.

    Exits with an error if a header's folder has no section.
    """
    text = (root / "cmake/PenstockInstall.cmake").read_text()
    lists = re.findall(r"set\(PENSTOCK_(?:PUBLIC|ENGINE)_HEADERS([^)]*)\)", text)
    names = " ".join(lists).split()
    for name in names:
        if name.split("/")[0] not in SECTIONS:
            sys.exit(f"docs/site: the header {name} is public: add its folder to SECTIONS in headers.py")
    return names


def source(root: pathlib.Path, name: str) -> pathlib.Path:
    """Returns the file of a public header, which includes name without its wing."""
    return next(path for path in (root / "src" / name, *root.glob(f"src/*/{name}")) if path.exists())


def for_doxygen(text: str) -> str:
    """Returns the header with its plain comments as Doxygen's. The first comment describes the file.

    The pages declare namespace penstock once, so the result is without it: Sphinx warns of a second declaration.
    """
    lines, comment, after_trailing = ["/// \\file"], [], None
    for line in _public_lines(_ROWS.sub(";", text)):
        leading, trailing = _LEADING.match(line), _TRAILING.match(line)
        if leading and after_trailing == len(leading["indent"]):  # the rest of a trailing comment
            lines.append(f"{leading['indent']}///< {_escape(leading['text'].strip())}")
            continue
        after_trailing = None
        if leading:
            comment.append(leading["text"])
            continue
        lines += _comment_lines(comment)
        comment = []
        if trailing:
            after_trailing = trailing.end("gap")
            line = f"{trailing['code']}  ///< {_escape(trailing['text'])}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _public_lines(text: str) -> Iterator[str]:
    """Yields the lines without private members, whose specifiers are indented by one more than their class."""
    end = None
    for line in text.splitlines():
        private = _PRIVATE.match(line)
        if private:
            end = re.compile(rf"{private[1]}(\}};| (public|protected):)")
        elif end and end.match(line):
            end = None
        if not end and not _NAMESPACE.match(line):
            yield line


def _comment_lines(comment: list[str]) -> list[str]:
    lines, in_code = [], False
    for text in comment:
        code = text.startswith(_CODE_INDENT)
        if code != in_code:
            lines.append("/// \\verbatim" if code else "/// \\endverbatim")
            in_code = code
        lines.append(f"///{text}" if code else f"/// {_escape(text.strip())}")
    if in_code:
        lines.append("/// \\endverbatim")
    return lines


def _escape(text: str) -> str:
    text = re.sub(r"([\\@#&<>%$])", r"\\\1", text).replace("::", "\\::")
    return re.sub(r"`([^`]+)`", r"<tt>\1</tt>", text)
