"""Limits on waits that count only the time in which this process ran."""

import time


class OwnTimeLimit:
    """A limit whose owner looks often.

    The time between two looks counts at most a second, because a process that was stopped, or
    whose machine was suspended, has not looked.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._longest = min(1.0, seconds / 4)
        self._last = time.monotonic()

    def is_over(self) -> bool:
        """Looks. Returns whether the limit is reached."""
        now = time.monotonic()
        self._left -= min(now - self._last, self._longest)
        self._last = now
        return self._left <= 0
