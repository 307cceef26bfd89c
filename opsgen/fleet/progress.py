"""Progress of one stage on stderr: a live bar on a terminal, a line now and then elsewhere.

Rate, time left and lease use are those of the last minute: a fleet's children take half
a minute to start, and what a rate since the beginning says would lag behind for as long.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from types import TracebackType

from rich import progress as bars
from rich.console import Console
from rich.text import Text

LINE_EVERY_S = 5.0
RECENT_S = 60.0


class Recent:
    """How much of something there was lately, per second.

    Counts from the last amount before the recent minute, or from the first there
    was: what came before that says nothing of the rate.
    """

    def __init__(self) -> None:
        self._amounts: deque[tuple[float, float]] = deque()
        self._total = 0.0

    def add(self, amount: float, now_s: float) -> None:
        """Note an amount that came about just now."""
        self._amounts.append((now_s, amount))
        self._total += amount
        while len(self._amounts) > 1 and self._amounts[1][0] < now_s - RECENT_S:
            self._total -= self._amounts.popleft()[1]

    def per_s(self, begin_s: float, now_s: float) -> float:
        """Return the amount per second.

        Args:
            begin_s: When everything began: all there is to go by with a single amount.
            now_s: The present, by the same clock as the amounts.
        """
        if not self._amounts:
            return 0.0
        since_s, first = self._amounts[0]
        if len(self._amounts) == 1:
            return first / max(now_s - begin_s, 1e-3)
        return max(self._total - first, 0.0) / max(now_s - since_s, 1e-3)


class Progress:
    """Counts what becomes of jobs and shows it, as a context manager.

    Args:
        total: Jobs expected; None where the end is not known.
        title: What is being done, in a word.
        num_devices: Devices that the jobs share out: lease use is that of all together.
        console: Where to show it; by default stderr.
    """

    def __init__(
        self,
        total: int | None,
        title: str,
        *,
        num_devices: int = 1,
        console: Console | None = None,
    ) -> None:
        self.title = title
        self.counts: Counter[str] = Counter()
        self._total = total
        self._num_devices = num_devices
        self._done = Recent()
        self._held = Recent()
        self._has_held = False
        self._num_printed: int | None = None
        self._begin_s = self._line_s = time.monotonic()
        self._console = console or Console(stderr=True, highlight=False)
        self._bar = bars.Progress(
            bars.TextColumn("[bold]{task.description}"),
            bars.BarColumn(bar_width=24),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[rate]}"),
            bars.TextColumn("{task.fields[counts]}"),
            console=self._console,
            refresh_per_second=4,
        )
        self._task = self._bar.add_task(f"{title:<8}", total=total, rate="", counts=Text())

    def __enter__(self) -> Progress:
        self._begin_s = self._line_s = time.monotonic()
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()
        else:
            self._print_line()

    @property
    def num_done(self) -> int:
        """Jobs that came to an end."""
        return self.counts.total()

    def update(self, label: str, *, hold_s: float = 0.0) -> None:
        """Count one job that came to an end as `label`, such as `ok` or the reason of a fault.

        Args:
            label: What became of it.
            hold_s: Seconds for which it held a device, if `hold` was not told.
        """
        self.counts[label] += 1
        self._done.add(1.0, time.monotonic())
        if hold_s:
            self.hold(hold_s)
        if self._console.is_terminal:
            self._bar.update(self._task, advance=1, rate=self._pace(), counts=self._tail())
        elif time.monotonic() - self._line_s >= LINE_EVERY_S:
            self._print_line()

    def hold(self, hold_s: float) -> None:
        """Note that a device was held: by an attempt, whether it ended its job or is repeated."""
        self._has_held = self._has_held or hold_s > 0.0
        self._held.add(hold_s, time.monotonic())

    def set_total(self, total: int | None) -> None:
        """Change the number of jobs expected, as another round begins."""
        self._total = total
        self._bar.update(self._task, total=total)

    def line(self) -> str:
        """Return the present state in one plain line."""
        of_total = "" if self._total is None else f"/{self._total}"
        parts = (f"{self.title}: {self.num_done}{of_total}", self._pace(), self._tail())
        return ", ".join(part for part in parts if part)

    def _pace(self) -> str:
        """Return the rate, and the time left where the end is known."""
        per_s = self._done.per_s(self._begin_s, time.monotonic())
        if not per_s:
            return ""
        rate = f"{60.0 * per_s:.0f}/min"
        if self._total is None or self.num_done >= self._total:
            return rate
        return f"{rate}, {_duration((self._total - self.num_done) / per_s)} left"

    def _tail(self) -> str:
        counts = "  ".join(f"{label} {count}" for label, count in self.counts.most_common())
        use = self._held.per_s(self._begin_s, time.monotonic()) / self._num_devices
        return f"{counts}  lease {min(use, 1.0):.0%}" if self._has_held else counts

    def _print_line(self) -> None:
        self._line_s = time.monotonic()
        if self.num_done != self._num_printed:
            self._num_printed = self.num_done
            self._console.print(self.line(), soft_wrap=True, markup=False)


def _duration(seconds: float) -> str:
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest_s:02}" if hours else f"{minutes}:{rest_s:02}"
