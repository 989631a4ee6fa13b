"""Scripts of the tests in several processes, and what they print."""

from __future__ import annotations

from forks import run_all


def errors_of(script: str, processes: int = 4) -> dict[str, float]:
    """Runs a script, and returns what `parity.report` printed: by name and process. All processes must end well."""
    ended = run_all(script, processes=processes, OMP_NUM_THREADS="1")
    assert all(code == 0 for code, _, _ in ended), ended
    lines = [line.split(maxsplit=6) for _, out, _ in ended for line in out.splitlines() if line.startswith("error of ")]
    return {f"{name} on {process} {what}": float(error) for _, _, name, _, process, error, what in lines}


def cases_of(script: str, processes: int = 4) -> dict[str, list[str]]:
    """Runs a script, and returns what `parity.said` printed: by name, the lines of the processes in order."""
    ended = run_all(script, processes=processes, OMP_NUM_THREADS="1")
    assert all(code == 0 for code, _, _ in ended), ended
    found: dict[str, dict[int, str]] = {}
    for line in (line for _, out, _ in ended for line in out.splitlines() if line.startswith("case ")):
        _, name, process, text = line.split(" ", 3)
        found.setdefault(name, {})[int(process)] = text
    return {name: [of[process] for process in sorted(of)] for name, of in found.items()}


def expect_on_all(found: dict[str, list[str]], parts: dict[str, str], processes: int = 4) -> None:
    """Asserts that each process printed a line with the part of the case's name, as `cases_of` returns them."""
    for name, part in parts.items():
        assert len(found[name]) == processes and all(part in line for line in found[name]), (name, found[name])
