"""Families: tasks so alike that a split must not part them.

Tasks are of one family if any key of theirs is equal, their `Model` reads the
same but for numbers and own names, or its shingles overlap. Families are the
connected components of these links, so they do not depend on the order of
tasks, and are named by the smallest hash among their members. Nothing is kept
of a task but the shingles of what had not been seen before.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from zlib import crc32

from opsgen.records import digest
from opsgen.source.fingerprints import form_shingles
from opsgen.source.normalise import read_form
from opsgen.source.shingles import shingles

SIMILARITY = 0.9
"""Least Jaccard index of two tasks of a family, whatever their ops. Chains of five ops that
differ in one lie at some 0.75."""
SAME_OPS_SIMILARITY = 0.5
"""The same for tasks that call the same ops in the same order but for identities: a line more
in a task of two ops already costs a third of its shingles."""


class Families:
    """Groups tasks, in two passes: add all, then ask for their families.

    Memory grows with the number of tasks that differ by more than numbers and names, and
    of their keys.
    """

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._grams: list[array[int]] = []
        self._words: list[int] = []
        self._keys: dict[str, int] = {}
        self._links: set[tuple[int, int]] = set()
        self._names: list[str] | None = None

    def __len__(self) -> int:
        """Return the number of tasks that differ by more than numbers and names."""
        return len(self._places)

    def add(self, code: str, *keys: str) -> str:
        """Add a task; adding it again changes nothing.

        Args:
            code: Its source. One that does not parse is like its equals only.
            keys: What it shares with all of its family, such as the hash of a sampled graph
                without attributes or that of a trace.

        Returns:
            What `family` takes, so that the source need not be read a second time.
        """
        shape, grams, words = _read(code)
        place = self._places.get(shape)
        if place is None:
            place = self._places[shape] = len(self._places)
            self._grams.append(grams)
            self._words.append(words)
            self._names = None
        for key in keys:
            other = self._keys.setdefault(key, place)
            if other != place and (other, place) not in self._links:
                self._links.add((other, place))
                self._names = None
        return shape

    def family(self, shape: str) -> str:
        """Return the family of what `add` returned `shape` for: 16 hex digits.

        Raises:
            KeyError: No such task was added.
        """
        if self._names is None:
            self._names = self._link()
        return self._names[self._places[shape]]

    def family_of(self, code: str) -> str:
        """Return the family of a task that was added.

        Raises:
            KeyError: It was not.
        """
        return self.family(_read(code)[0])

    def _link(self) -> list[str]:
        """Return the name of every place's family."""
        sets = _Sets(len(self._places))
        for first, second in self._links:
            sets.join(first, second)
        by_words: dict[int, list[int]] = defaultdict(list)
        for place, words in enumerate(self._words):
            by_words[words].append(place)
        for words, places in by_words.items():
            if words and len(places) > 1:
                self._join_similar(places, SAME_OPS_SIMILARITY, sets)
        self._join_similar(range(len(self._places)), SIMILARITY, sets)
        names: dict[int, str] = {}
        for shape, place in self._places.items():
            root = sets.root(place)
            names[root] = min(names.get(root, shape), shape)
        return [names[sets.root(place)] for place in range(len(self._places))]

    def _join_similar(self, places: Sequence[int], least: float, sets: _Sets) -> None:
        """Join all pairs of places whose Jaccard index is at least `least`; exact.

        Two sets that overlap so much share one of the rarest elements of each: only
        what meets there is compared (the prefix filter of set-similarity joins).
        """
        counts = Counter(gram for place in places for gram in self._grams[place])
        postings: dict[int, list[int]] = defaultdict(list)
        for place in sorted(places, key=lambda place: len(self._grams[place])):
            grams = sorted(self._grams[place], key=lambda gram: (counts[gram], gram))
            num_rarest = len(grams) - math.ceil(least * len(grams)) + 1
            for gram in grams[:num_rarest]:
                for other in postings[gram]:
                    self._join_pair(place, other, least, sets)
                postings[gram].append(place)

    def _join_pair(self, first: int, second: int, least: float, sets: _Sets) -> None:
        num_first, num_second = len(self._grams[first]), len(self._grams[second])
        if num_second < least * num_first or sets.root(first) == sets.root(second):
            return
        shared = len(set(self._grams[first]).intersection(self._grams[second]))
        if shared >= least * (num_first + num_second - shared):
            sets.join(first, second)


class _Sets:
    """Disjoint sets of places (union-find with path halving)."""

    def __init__(self, size: int) -> None:
        self._parents = array("l", range(size))

    def root(self, place: int) -> int:
        parents = self._parents
        while parents[place] != place:
            parents[place] = place = parents[parents[place]]
        return place

    def join(self, first: int, second: int) -> None:
        self._parents[self.root(first)] = self.root(second)


def _read(code: str) -> tuple[str, array[int], int]:
    """Return the hash of a task's shingles, the shingles, and a hash of its ops, 0 for none."""
    try:
        form = read_form(code)
    except (SyntaxError, ValueError):
        text = array("I", shingles([code]))
        return digest(code), text, 0
    grams = array("I", sorted(form_shingles(form)))
    words = crc32("\n".join(form.words).encode()) if form.words else 0
    return digest(list(grams), form.words), grams, words
