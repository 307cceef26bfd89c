"""Progress of one stage on stderr: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType

from rich import progress as bars
from rich.console import Console
from rich.text import Text

LINE_EVERY_S = 5.0
_RATE_OVER_S = 60.0


class Progress:
    """Counts what becomes of jobs and shows it, as a context manager.

    Args:
        total: Jobs expected; None where the end is not known.
        title: What is being done, in a word.
        num_devices: Devices whose lease use is shown.
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
        self._hold_s = 0.0
        self._num_printed: int | None = None
        self._begin_s = self._line_s = time.monotonic()
        self._console = console or Console(stderr=True, highlight=False)
        self._bar = bars.Progress(
            bars.TextColumn("[bold]{task.description}"),
            bars.BarColumn(bar_width=24),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[rate]}"),
            bars.TimeRemainingColumn(compact=True),
            bars.TextColumn("{task.fields[counts]}"),
            console=self._console,
            speed_estimate_period=_RATE_OVER_S,
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
            hold_s: Seconds for which it held a device.
        """
        self.counts[label] += 1
        self._hold_s += hold_s
        if self._console.is_terminal:
            self._bar.update(self._task, advance=1, rate=self._rate(), counts=self._tail())
        elif time.monotonic() - self._line_s >= LINE_EVERY_S:
            self._print_line()

    def set_total(self, total: int | None) -> None:
        """Change the number of jobs expected, as another round begins."""
        self._total = total
        self._bar.update(self._task, total=total)

    def line(self) -> str:
        """Return the present state in one plain line."""
        of_total = "" if self._total is None else f"/{self._total}"
        parts = [f"{self.title}: {self.num_done}{of_total}", self._rate()]
        if self._total is not None and 0 < self.num_done < self._total:
            left_s = self._elapsed_s() / self.num_done * (self._total - self.num_done)
            parts.append(f"{_duration(left_s)} left")
        return ", ".join(part for part in (*parts, self._tail()) if part)

    def _tail(self) -> str:
        counts = "  ".join(f"{label} {count}" for label, count in self.counts.most_common())
        use = self._hold_s / (self._elapsed_s() * self._num_devices)
        return f"{counts}  lease {min(use, 1.0):.0%}" if self._hold_s else counts

    def _rate(self) -> str:
        return f"{60.0 * self.num_done / self._elapsed_s():.0f}/min" if self.num_done else ""

    def _elapsed_s(self) -> float:
        return max(time.monotonic() - self._begin_s, 1e-3)

    def _print_line(self) -> None:
        self._line_s = time.monotonic()
        if self.num_done != self._num_printed:
            self._num_printed = self.num_done
            self._console.print(self.line(), soft_wrap=True, markup=False)


def _duration(seconds: float) -> str:
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest_s:02}" if hours else f"{minutes}:{rest_s:02}"
