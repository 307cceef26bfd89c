"""Whether every call of foreign code matters: each is deleted, and frozen at another value.

Like `node_effects`, without a graph. Several calls together are deleted where
they only lead back to a value that was there before.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator

from opsgen.records import Effect
from opsgen.verify.detours import Bypass, Detour, find_detours
from opsgen.verify.surgery import Part, Surgery

MAX_CALLS = 64
MAX_S = 2.0
"""Processor seconds that the calls of one task may take; what does not fit is left out, evenly."""
_MAX_KEPT_BYTES = 512 * 2**20


def call_effects(surgery: Surgery) -> tuple[Effect, ...]:
    """Return what deleting and freezing each call of a task does.

    Not judged are calls that follow from constants alone, and freezing what is returned as it
    is: that is the replay answer. At most `MAX_CALLS` calls and about `MAX_S` seconds.
    """
    parts = [part for part in surgery.parts() if part.is_given]
    start_s = time.process_time()
    detours = detour_effects(surgery)
    effects: list[Effect] = []
    for part in evenly(parts, MAX_CALLS):
        if time.process_time() - start_s > MAX_S:
            break
        if part.size_bytes > _MAX_KEPT_BYTES:
            continue
        subject = f"call {part.index} ({part.name})"
        margin = confirmed(surgery, functools.partial(_deleted, part))
        if margin is not None:
            effects.append(Effect(subject=subject, change="deleted", margin=margin))
        if part.is_output:
            continue
        margin = confirmed(surgery, functools.partial(_any_frozen, part))
        if margin is not None:
            effects.append(Effect(subject=subject, change="frozen", margin=margin))
            if margin <= 1:
                surgery.idle.append(part)
    return (*effects, *detours)


def detour_effects(surgery: Surgery) -> list[Effect]:
    """Return what it does to hand on, instead of what some calls lead back to, where they began.

    At most half of `MAX_S`, so that single calls have their turn.
    """
    start_s = time.process_time()
    effects: list[Effect] = []
    for detour in find_detours(surgery):
        if time.process_time() - start_s > MAX_S / 2:
            break
        margin = confirmed(surgery, functools.partial(_bypassed, detour))
        if margin is not None:
            effects.append(Effect(subject=detour.subject, change="deleted", margin=margin))
    return effects


def _bypassed(detour: Detour, surgery: Surgery) -> float | None:
    return surgery.margin(Bypass(detour, surgery))


def _deleted(part: Part, surgery: Surgery) -> float | None:
    return surgery.deleted(part)


def _any_frozen(part: Part, surgery: Surgery) -> float | None:
    """Return the largest margin of freezing a result of a part: some may be there for nobody."""
    return max(surgery.frozen(part), default=None)


def confirmed(surgery: Surgery, judge: Callable[[Surgery], float | None]) -> float | None:
    """Return a margin, and where it is that of a dead part the largest over weight seeds.

    Of a narrow twin's few channels one draw of the weights may well leave all on one side.
    """
    margin = judge(surgery)
    reference, (first, *others) = surgery.reference, surgery.seeds
    for place, seed in enumerate(others if reference.state.names else ()):
        if margin is None or margin > 1:
            break
        reference.state.redraw(seed)
        seeds = (seed, first, *others[:place], *others[place + 1 :])
        elsewhere = dataclasses.replace(
            surgery, seeds=seeds, _outputs={}, _stress=None, _tails=None
        )
        again = judge(elsewhere)
        margin = margin if again is None else max(margin, again)
        reference.state.redraw(first)
    return margin


def evenly(parts: list[Part], count: int) -> Iterator[Part]:
    """Yield `count` parts in an order in which any beginning is spread over all."""
    step = max(1, math.ceil(len(parts) / count))
    chosen = parts[::step]
    for stride in (4, 2, 1):
        for place in range(0, len(chosen), stride):
            if stride == 4 or place % (2 * stride):
                yield chosen[place]
