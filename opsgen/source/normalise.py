"""Normalised source: what identifies foreign code, and what makes two sources alike.

Three readings of the canonical tokens: all of them name a task, those with
numbers abstracted name a skeleton, and those of `Model` with own names
abstracted too are what similarity is counted on.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache

from opsgen.records import digest
from opsgen.source.canonical import Canon

IDENTITIES = frozenset({"clone", "contiguous", "detach", "identity"})
"""Words of calls that change no value, as in `Form.words`."""


@dataclass(frozen=True, slots=True)
class Form:
    """The normalised form of a source.

    Attributes:
        tokens: The whole source with own names numbered and numbers as they are.
        model_tokens: `Model` and what it mentions. Numbers, own names and the lengths of bodies
            are all alike, but an attribute is called by what makes it, so that the names of
            torch stay in place.
        words: Last components of the names that `Model` calls, in order of evaluation, such as
            `conv2d`, without what leaves its argument as it is.
    """

    tokens: tuple[str, ...]
    model_tokens: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def source_hash(self) -> str:
        """Identity of the source, 16 hex digits."""
        return digest("\n".join(self.tokens))

    @property
    def skeleton(self) -> str:
        """Identity of the source without its numbers, 16 hex digits."""
        return digest(["#" if token[0] == "#" else token for token in self.tokens])


@lru_cache(maxsize=8)
def read_form(code: str) -> Form:
    """Return the normalised form of `code`.

    Raises:
        SyntaxError: The code does not parse, or is nested too deeply to be walked.
        ValueError: It holds null bytes.
    """
    try:
        canon = Canon(ast.parse(code))
    except (RecursionError, MemoryError) as error:
        raise SyntaxError("nested too deeply") from error
    model = canon.tokens[: canon.num_model_tokens]
    return Form(
        tokens=tuple(canon.tokens),
        model_tokens=tuple(_loose(token, canon.makers) for token in model),
        words=tuple(word for word in canon.words if word not in IDENTITIES),
    )


def normalised_source(code: str) -> str:
    """Return the canonical tokens of `code`, one a line.

    Sources that differ only in layout, comments, docstrings, annotations, names of their own,
    spelling of imports, or order of top-level definitions have the same.

    Raises:
        SyntaxError: The code does not parse.
    """
    return "\n".join(read_form(code).tokens)


def source_hash(code: str) -> str:
    """Return the identity of foreign code: a digest of its normalised form."""
    return read_form(code).source_hash


def _loose(token: str, makers: dict[str, str]) -> str:
    kind = token[0]
    if kind == "@":
        return f"@{makers[token]}"
    if kind in "%&#{[":
        return kind
    return token.partition("/")[0] if token.startswith(("args/", "class/")) else token
