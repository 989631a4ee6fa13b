"""What all processes of a run do together before a step, so that they fail together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from penstock import Error
from penstock.torch.processes import sameness, wire
from penstock.torch.processes.own_time import OwnTimeLimit
from penstock.torch.processes.processes import Processes, failure_line

COMPILE_S = 300.0  # seconds for the other processes to compile their stages

_Own = TypeVar("_Own")


def agree(
    processes: Processes, timeout: float, work: Callable[[], tuple[_Own, Any]], call: str = "step"
) -> tuple[_Own, list[Any]]:
    """Runs ``work`` on every process. It returns a value for this one and a value for all.

    ``call``: the method that every process calls.

    Returns:
        The own value, and those for all by process. With a mesh, these are the processes of all planes.

    Raises:
        Error: the work has failed on a process; then this is raised on all of them.
    """
    if processes.plane is not None:
        timeout *= 2  # Another plane may wait for this long before it says what has failed.
    processes = processes.everyone
    if processes.processes == 1:
        own, shared = work()
        return own, [shared]
    try:
        own, shared = work()
    except Exception as error:
        _exchange(processes, timeout, call, (failure_line(error), None))
        raise
    of_all = _exchange(processes, timeout, call, (None, shared))
    for process, (failure, _) in enumerate(of_all):
        if failure is not None:
            raise Error(failure if failure.startswith("process ") else f"process {process}: {failure}")
    return own, [each for _, each in of_all]


def do_on_all(processes: Processes, timeout: float, work: Callable[[], None]) -> None:
    """Runs ``work`` on every process. Raises Error on all of them if it has failed on one."""

    def run() -> tuple[None, None]:
        work()
        return None, None

    agree(processes, timeout, run)


def compare(processes: Processes, timeout: float, facts_of: Callable[[], list[sameness.Facts]], call: str = "step") -> None:
    """Raises Error on every process unless they have the same facts."""
    if not processes.are_alone:
        _, of_all = agree(processes, timeout, lambda: (None, facts_of()), call)
        sameness.compare(of_all)


def _exchange(processes: Processes, timeout: float, call: str, value: Any) -> list[Any]:
    """Returns the values of all processes."""
    number = processes.next_evaluation()
    letter = wire.dumps((number, ("all", processes.process), (call, value)))
    letters = [letter] * processes.processes
    return _send(processes, timeout, call, number, letters, value)


def exchange(processes: Processes, timeout: float, call: str, values: Sequence[Any]) -> list[Any]:
    """Sends each process its value. Returns what each has sent to this one, by process.

    ``call``: the method that every process calls.
    """
    number = processes.next_evaluation()
    letters = [wire.dumps((number, ("all", processes.process), (call, value))) for value in values]
    return _send(processes, timeout, call, number, letters, values[processes.process])


def _send(processes: Processes, timeout: float, call: str, number: int, letters: Sequence[bytes], own: Any) -> list[Any]:
    others = [process for process in range(processes.processes) if process != processes.process]
    for other in others:
        processes.handle.send(other, letters[other])
    values, limit = {processes.process: own}, OwnTimeLimit(timeout)
    while True:
        for other in others:
            if (number, ("all", other)) in processes.letters:
                theirs, values[other] = processes.letters.pop((number, ("all", other)))
                if theirs != call:
                    first, second = sorted([(processes.process, call), (other, theirs)])
                    raise Error(
                        f"process {first[0]} calls {first[1]}, but process {second[0]} calls {second[1]}: "
                        "call the same on every process, in the same order"
                    )
        if len(values) == processes.processes:
            return [values[process] for process in range(processes.processes)]
        received = processes.handle.receive(50)  # ms, between which Ctrl-C is noticed
        if received:
            of, key, content = wire.loads(received)
            processes.letters[of, key] = content
        elif limit.is_over():
            missing = next(other for other in others if other not in values)
            raise Error(f"{call}: process {missing} has not called {call} within {timeout:g} s: call it on every process")
