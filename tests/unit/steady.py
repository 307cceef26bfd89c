"""Timings that never vary, for tests of what is read off them."""

from __future__ import annotations

from opsgen.records import Timing


def steady(mode: str, median_ms: float, num_overtaken: int = 0) -> Timing:
    """Return the timing of a mode of which every call took the same."""
    return Timing(
        mode=mode,
        samples_ms=(median_ms,) * 7,
        median_ms=median_ms,
        q25_ms=median_ms,
        q75_ms=median_ms,
        ci_ms=(median_ms, median_ms),
        num_warmup=3,
        num_overtaken=num_overtaken,
    )
