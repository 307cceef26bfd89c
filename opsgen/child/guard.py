"""What of a child's state one job must hand on to the next unchanged.

A `Keeper` looks after one piece of it. Keepers of the interpreter are in
`interpreter` and `leftovers`; those of libraries that this room must not import
come from `opsgen.jobs.state`, found by name once such a library is loaded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Check = Callable[[], Iterable[str]]
"""Puts a piece of state back, and names each change that putting back may not have undone."""

Keeper = Callable[[], Check]
"""Takes note of a piece of state before a job."""

_MAX_NAMED = 5
_UNREADABLE = (AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)


class StateGuard:
    """State from before a job, put back after it.

    A change that nothing else can have picked up (a flag, a generator's state)
    is put back and forgotten. Any other spoils the process: it is put back all
    the same, so that the job's own answer can be sent, and then the process is
    replaced. Takes about 2 ms a job with torch loaded.
    """

    def __init__(self, keepers: Sequence[Keeper]) -> None:
        self._checks = [keep() for keep in keepers]

    def restore(self) -> str | None:
        """Put everything back; return what spoils the process, None if nothing does."""
        changes: list[str] = []
        for check in self._checks:
            try:
                changes += check()
            except _UNREADABLE as error:
                changes.append(f"left a state that cannot be read: {error}")
        if len(changes) > _MAX_NAMED:
            changes[_MAX_NAMED:] = [f"{len(changes) - _MAX_NAMED} more"]
        return ", ".join(changes) or None


def keep_value(
    name: str,
    read: Callable[[], Any],
    write: Callable[[Any], object],
    *,
    leaves_traces: bool = False,
) -> Keeper:
    """Return a keeper of one value.

    Args:
        name: What it is, for the reason.
        read: Returns the value; values are compared with `==`.
        write: Sets it.
        leaves_traces: Others may have picked the changed value up meanwhile.
    """

    def keep() -> Check:
        before = read()

        def check() -> Iterable[str]:
            if read() == before:
                return
            write(before)
            if leaves_traces or read() != before:
                yield f"changed {name}"

        return check

    return keep


def _never(value: Any) -> bool:
    return False


def keep_namespaces(
    list_namespaces: Callable[[], Iterable[tuple[str, Any]]],
    is_own: Callable[[Any], bool] = _never,
) -> Keeper:
    """Return a keeper of the names in modules and classes: nothing in them may be replaced.

    Args:
        list_namespaces: Returns pairs of a name and a module or class.
        is_own: Tells what a library puts there itself, when it is first used: that may stay.
    """

    def keep() -> Check:
        before = [(name, owner, dict(vars(owner))) for name, owner in list_namespaces()]

        def check() -> Iterable[str]:
            for name, owner, names in before:
                if not _are_same(vars(owner), names):
                    yield from _put_back(name, owner, names, is_own)

        return check

    return keep


def _are_same(now: Mapping[str, Any], before: dict[str, Any]) -> bool:
    # In C: torch's names are some ten thousand. Another order only costs the slow way.
    return len(now) == len(before) and all(map(operator.is_, now.values(), before.values()))


def _put_back(
    name: str, owner: Any, before: dict[str, Any], is_own: Callable[[Any], bool]
) -> Iterable[str]:
    """Put back what can be called; data are a module's own, such as whether it is initialised."""
    now = dict(vars(owner))
    for key, value in before.items():
        if not callable(value) or (key in now and (now[key] is value or is_own(now[key]))):
            continue
        setattr(owner, key, value)
        yield f"replaced {name}.{key}"
    for key in now.keys() - before.keys():
        if callable(now[key]) and not is_own(now[key]) and not _is_cache(key, owner):
            delattr(owner, key)
            yield f"added {name}.{key}"


def _is_cache(key: str, owner: Any) -> bool:
    """Names with an underscore are a module's own business, but for the methods of classes."""
    is_method = isinstance(owner, type) and key.startswith("__") and key.endswith("__")
    return key.startswith("_") and not is_method
