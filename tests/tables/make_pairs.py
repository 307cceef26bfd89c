"""Makes `opsgen/tables/pairs.toml`: which legal pairs of ops are bad when they are run.

    python tests/tables/make_pairs.py try WORK [--minutes 35] [--part 0/2] [--first REGEX] [--quick]
    python tests/tables/make_pairs.py confirm WORK [--minutes 35]
    python tests/tables/make_pairs.py write WORK

`try` appends a line for every pair to a file of its own in the folder WORK, and goes on where
earlier calls stopped; several processes take a part each. Pairs come by need: first those in
which both ops are of kinds that cancel each other out, then those of the small strata, which
plans draw from most often, then those whose ops both have properties or bounds, then the rest;
within each in a keyed random order, so that whatever has been tried when time is up is a fair
sample. `confirm` tries what would be listed again, since chance alone lists some. `write` makes
the table of all lines.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from pair_tries import FINE, NUM_TRIES, PairResult, try_once, try_pair

from opsgen.ops import BLOCK_OPS, CATALOGUE, Interval, Kind, Op
from opsgen.ops.intervals import REAL
from opsgen.sampler import pairs, table
from opsgen.sampler.pairs import REASONS
from opsgen.sampler.strata import STRATA, stratum_of, stratum_of_sequence
from opsgen.sampler.table import feasible_ranks

TABLE = Path(pairs.__file__).parents[1] / "tables" / "pairs.toml"
_WIDTH = 100
_CANCELLING = (
    Kind.POINTWISE,
    Kind.REDUCTION,
    Kind.SOFTMAX,
    Kind.NORMALIZATION,
    Kind.LOSS,
    Kind.SCAN,
    Kind.SORT,
)
_SMALL = ("epilogue", "statistics", "chain")
_HEADER = """\
# Ordered pairs of catalogue ops (first: the seconds that read it) that domains and algebra
# allow and that running shows to be bad, by the reason met most often; opsgen/sampler/pairs.py
# says what the reasons mean. Each pair was tried on up to three graphs with attributes,
# operands and sizes of their own, at the tiny twin's sizes, in float32 on a CPU, with the
# probe's checks, and on two more if it was bad; it is listed if most of them failed.
# Made by tests/tables/make_pairs.py on 2026-12-01 with torch {torch}: {tried} of the {legal}
# legal pairs were tried, {once} of these on a single graph that was fine; {bad} are listed. A
# pair that was not tried is not listed.
"""

Pair = tuple[str, str]


def legal_pairs() -> list[Pair]:
    """Return all pairs that a chain of two ops may be; listed ones too while `unlisted`."""
    return [pair for pair in itertools.product(CATALOGUE, CATALOGUE) if is_legal(*pair)]


def is_legal(first: str, second: str) -> bool:
    """Whether a chain of two ops may be this pair."""
    is_used = all(
        CATALOGUE[name].is_deterministic and name not in BLOCK_OPS for name in (first, second)
    )
    return is_used and bool(feasible_ranks((first, second)))


@contextmanager
def unlisted() -> Iterator[None]:
    """Let the sampler make of a pair what it would without the table, for the block."""
    known = pairs._degenerate
    pairs._degenerate = dict
    _forget()
    try:
        yield
    finally:
        pairs._degenerate = known
        _forget()


def _forget() -> None:
    for function in vars(table).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def by_need(found: list[Pair]) -> list[Pair]:
    """Return pairs in the order in which they are tried."""
    return sorted(found, key=lambda pair: (_tier(*pair), _key(pair)))


def is_first_tier(first: str, second: str) -> bool:
    """Whether a pair is among the first to be tried: ops of its kinds cancel each other out."""
    return all(CATALOGUE[name].kind in _CANCELLING for name in (first, second))


def _tier(first: str, second: str) -> int:
    ops = (CATALOGUE[first], CATALOGUE[second])
    if is_first_tier(first, second):
        return 0
    if stratum_of(*ops) in _SMALL:
        return 1
    return 2 if all(_is_special(op) for op in ops) else 3


def _is_special(op: Op) -> bool:
    is_bounded = not isinstance(op.range, Interval) or op.range != REAL
    known = (op.fixes, op.flattens, op.undoes, op.props - {"commutative"})
    return is_bounded or op.domain != REAL or any(known)


def _key(pair: Pair) -> str:
    return hashlib.blake2b(" ".join(pair).encode(), digest_size=8).hexdigest()


def read_results(work: Path) -> dict[Pair, PairResult]:
    """Return what has been tried so far."""
    found = {}
    for path in sorted(work.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            known = json.loads(line)
            pair, tries = (known["first"], known["second"]), tuple(known["tries"])
            if pair not in found or len(tries) >= len(found[pair].tries):
                found[pair] = PairResult(tries)
    return found


def confirm(arguments: argparse.Namespace) -> None:
    """Try pairs that would be listed on two more graphs each, the doubtful ones first."""
    torch.set_num_threads(1)
    end = time.monotonic() + 60 * arguments.minutes
    known = {pair: found.tries for pair, found in read_results(arguments.work).items()}
    listed = [pair for pair in known if PairResult(known[pair]).reason and len(known[pair]) < 4]
    with (arguments.work / "tries-confirmed.jsonl").open("a") as lines:
        for first, second in sorted(listed, key=lambda pair: (FINE not in known[pair], _key(pair))):
            if time.monotonic() > end:
                return
            more = [try_once(first, second, NUM_TRIES + again) for again in range(2)]
            tries = [*known[first, second], *more]
            lines.write(json.dumps({"first": first, "second": second, "tries": tries}) + "\n")


def run(arguments: argparse.Namespace) -> None:
    """Try pairs until they or the minutes are spent."""
    torch.set_num_threads(1)
    part, parts = (int(number) for number in arguments.part.split("/"))
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    known = read_results(work)
    end = time.monotonic() + 60 * arguments.minutes
    with (work / f"tries-{part}-{parts}.jsonl").open("a") as lines:
        for first, second in by_need(legal_pairs())[part::parts]:
            if (first, second) in known or not re.fullmatch(arguments.first, first):
                continue
            if time.monotonic() > end:
                return
            tries = try_pair(first, second, is_quick=arguments.quick).tries
            lines.write(json.dumps({"first": first, "second": second, "tries": tries}) + "\n")
            lines.flush()


def write(arguments: argparse.Namespace) -> None:
    """Write the table that ships."""
    legal = legal_pairs()
    results = read_results(arguments.work)
    tried = [pair for pair in legal if pair in results]
    bad = {pair: results[pair].reason for pair in tried}
    bad = {pair: reason for pair, reason in bad.items() if reason}
    text = _HEADER.format(
        torch=torch.__version__.partition("+")[0],
        tried=len(tried),
        legal=len(legal),
        once=sum(results[pair].tries == (FINE,) for pair in tried),
        bad=len(bad),
    )
    TABLE.write_text(text + "".join(_sections(legal, tried, bad)))


def _sections(legal: list[Pair], tried: list[Pair], bad: dict[Pair, str]) -> Iterator[str]:
    yield "\n# How much of each stratum was tried.\n[strata]\n"
    counts = [Counter(map(stratum_of_sequence, found)) for found in (legal, tried, bad)]
    for stratum in STRATA:
        numbers = (count[stratum] for count in counts)
        yield "{} = {{ legal = {}, tried = {}, listed = {} }}\n".format(stratum, *numbers)
    for reason, meaning in REASONS.items():
        listed = sorted(pair for pair, why in bad.items() if why == reason)
        if listed:
            yield f"\n# {len(listed)}: {meaning}\n[{reason}]\n"
        for first in sorted({first for first, _ in listed}):
            yield _entry(first, [second for known, second in listed if known == first])


def _entry(first: str, seconds: list[str]) -> str:
    line = f'{first} = "{" ".join(seconds)}"\n'
    if len(line) <= _WIDTH:
        return line
    rows = [""]
    for second in seconds:
        if len(rows[-1]) + len(second) + 1 > _WIDTH:
            rows.append("")
        rows[-1] = f"{rows[-1]} {second}".strip()
    quotes = '"' * 3
    return "\n".join([f"{first} = {quotes}", *rows, quotes]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("try", "confirm", "write"))
    parser.add_argument("work", type=Path)
    parser.add_argument("--minutes", type=float, default=35.0)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--first", default=".*", help="regular expression of first ops")
    parser.add_argument("--quick", action="store_true", help="one fine graph clears a pair")
    arguments = parser.parse_args()
    with unlisted():
        {"try": run, "confirm": confirm, "write": write}[arguments.action](arguments)


if __name__ == "__main__":
    main()
