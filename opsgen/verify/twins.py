"""Smaller workloads of foreign code: its module-level sizes cut until it still runs.

Foreign rows bring no workloads of their own. What may be cut is found by
trying on `meta`, which costs milliseconds; that the code also runs on a
device is for the caller to see.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from opsgen.source import LEVELS, assign_sizes, read_sizes, smaller_sizes
from opsgen.verify.reference import task_module
from opsgen.verify.running import TaskCodeError
from opsgen.verify.work import Outline, Rehearsal, outline, rehearse

# Where float64 is affordable, in bytes and floating-point operations of one call.
_DOUBLE = {"cpu": (64 * 2**20, 4 * 10**9), "cuda": (2 * 2**30, 10**12)}


_DIVISORS = (256, 128, 64, 32, 16, 8)
_BATCH = 4
_LEAST = 2


@dataclass(frozen=True, slots=True)
class Twin:
    """A workload of foreign code.

    Attributes:
        level: What its sizes were cut to; 0 for the full size.
        code: The code with these sizes.
        outline: Its work; None where `meta` cannot build it.
        rehearsal: All that `meta` shows; of the full size only.
    """

    level: int
    code: str
    outline: Outline | None
    rehearsal: Rehearsal | None = None

    def fits(self, max_bytes: float, max_flops: float) -> bool:
        """Whether it is affordable; at the full size only when its work is known."""
        if self.outline is None:
            return self.level > 0
        return self.outline.fits(max_bytes, max_flops)

    def is_built_like(self, other: Twin | None) -> bool:
        """Whether it has the parameters and buffers of another, as far as both are known."""
        if other is None or other.outline is None or self.outline is None:
            return True
        return self.outline.state_names == other.outline.state_names


def full_size(code: str) -> Twin:
    """Return the code as it is.

    Raises:
        TaskCodeError: It is wrong on any device.
    """
    with task_module(code) as module:
        found = rehearse(module, count_flops=True)
    return Twin(0, code, found.outline, found)


def find_twins(code: str) -> Iterator[Twin]:
    """Yield smaller workloads on which `code` runs as far as `meta` can tell, smallest first.

    Those that have other parameters or buffers, such as fewer layers, come after all others:
    what is there for nobody may be just what was cut.
    """
    whole = _try(0, code)
    held = _held_sizes(code, whole)
    num_found, others = 0, []
    for level, sizes in smaller_sizes(code):
        twin = _try(level, assign_sizes(code, {**sizes, **held}))
        if twin is not None and not twin.is_built_like(whole):
            others.append(twin)
        elif twin is not None:
            num_found += 1
            yield twin
    if not num_found:
        twin = _cut_each(code, whole)
        if twin is not None:
            yield twin
    yield from others


def _held_sizes(code: str, whole: Twin | None) -> dict[str, int]:
    """Return the sizes that count layers: without one of them there are other parameters."""
    _, names = next(smaller_sizes(code), (0, {}))
    sizes = {name: read_sizes(code)[name] for name in names}
    held = {}
    for name, value in sizes.items():
        twin = _try(0, assign_sizes(code, {name: value - 1}))
        if twin is not None and not twin.is_built_like(whole):
            held[name] = value
    return held


def proportional_twins(code: str) -> Iterator[Twin]:
    """Yield workloads whose large sizes are all divided by one number, smallest first.

    Cuts to one level make different sizes equal: a group of channels comes down to a single
    one, and its normalisation to nothing. Here their proportions stay. All have the parameters
    and buffers of the code itself.
    """
    _, names = next(smaller_sizes(code), (0, {}))
    sizes = {name: read_sizes(code)[name] for name in names}
    whole = _try(0, code)
    held = _held_sizes(code, whole)
    batch = next(iter(sizes), "")
    seen: list[dict[str, int]] = []
    for divisor in _DIVISORS:
        cut = {name: _divided(value, divisor) for name, value in sizes.items()} | held
        if sizes and sizes[batch] > _BATCH:
            cut[batch] = _BATCH
        if cut != sizes and cut not in seen:
            seen.append(cut)
            twin = _try(max(cut.values()), assign_sizes(code, cut))
            if twin is not None and twin.is_built_like(whole):
                yield twin


def _divided(value: int, divisor: int) -> int:
    """Return a size cut by a divisor of its own as near to `divisor` as leaves two."""
    while divisor > 1 and (value % divisor or value // divisor < _LEAST):
        divisor //= 2
    return value // divisor


def _try(level: int, code: str) -> Twin | None:
    try:
        with task_module(code) as module:
            return Twin(level, code, outline(module, count_flops=True))
    except TaskCodeError:
        return None


def _cut_each(code: str, whole: Twin | None) -> Twin | None:
    """Cut one size after the other, the largest first, as far as the rest allows."""
    _, names = next(smaller_sizes(code), (0, {}))
    best: Twin | None = None
    sizes = {name: read_sizes(code)[name] for name in names}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        for level in LEVELS:
            if level >= sizes[name]:
                break
            twin = _try(level, assign_sizes(code, {**sizes, name: level}))
            if twin is not None and twin.is_built_like(whole):
                best, sizes[name] = twin, level
                break
    return best


@dataclass(frozen=True, slots=True)
class ForeignWork:
    """What a device must know of foreign code's work before it runs.

    Attributes:
        has_twin: A cut or the full size is small enough for a CPU to show every part of it.
        double_code: The largest workload at which float64 is affordable; None without one.
    """

    has_twin: bool
    double_code: str | None

    @classmethod
    def of(cls, code: str, device: str) -> ForeignWork:
        """Return the work of `code` on a device of type `device`.

        Raises:
            TaskCodeError: The code is wrong on any device.
        """
        limits = _DOUBLE[device]
        full = full_size(code)
        if full.fits(*limits):
            return cls(has_twin=full.fits(*_DOUBLE["cpu"]), double_code=full.code)
        twins = list(find_twins(code))
        # Without an outline a twin is affordable by its level alone: the smallest will do.
        known = [twin for twin in twins if twin.outline is not None] or twins[:1]
        fitting = [twin for twin in known if twin.fits(*limits)]
        return cls(
            has_twin=any(twin.fits(*_DOUBLE["cpu"]) for twin in known),
            double_code=max(fitting, key=lambda twin: twin.level).code if fitting else None,
        )
