"""assemble.py MODULE PAGE: writes the playground as one self-contained page. MODULE is .wasm or .wasm.gz.

Its scripts are the report's timelines (src/schedules/report/page) and this folder's, as parts of one function.
"""
import base64
import gzip
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
REPORT = HERE.parents[2] / "schedules" / "report" / "page"
PARTS = ["engine", "state", "show", "controls", "text_pane", "move", "compare", "lessons", "play", "share", "main"]


def report_scripts():
    """Returns the names of the scripts of the report, without the last one, which shows its own data."""
    listed = re.search(r"set\(scripts (.*?)\)", (REPORT.parent / "CMakeLists.txt").read_text(), re.DOTALL)
    names = listed.group(1).split()
    assert names[-1] == "report", names
    return names[:-1]


def page(module):
    script = "".join((REPORT / f"{name}.js").read_text() for name in report_scripts())
    script += "".join((HERE / f"{name}.js").read_text() for name in PARTS)
    texts = {
        "STYLE": (REPORT / "page.css").read_text() + (HERE / "playground.css").read_text(),
        "WORKER": (HERE / "worker.js").read_text(),
        "MODULE": base64.b64encode(module).decode(),
        "SCRIPT": script,
    }
    return re.sub("@([A-Z]+)@", lambda name: texts[name.group(1)], (HERE / "playground.html").read_text())


def main(module, target):
    pathlib.Path(target).parent.mkdir(parents=True, exist_ok=True)
    path = pathlib.Path(module)
    text = page(path.read_bytes() if path.suffix == ".gz" else gzip.compress(path.read_bytes(), 9, mtime=0))
    # Whoever reads it meanwhile has the page before.
    written = pathlib.Path(target + ".part")
    written.write_text(text, encoding="utf-8")
    written.replace(target)


main(*sys.argv[1:])
