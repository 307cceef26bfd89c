"""Long lines, split the way black splits them."""

from __future__ import annotations

import itertools
import re

WIDTH = 88
_CLOSING = ")]}"
_OPENING = "([{"
# What hangs on a call and has no content of its own to open up.
_TRAILERS = re.compile(r"(?<=\))(?:\.\w+\(\)|\[\d+\])+$")


def fit_line(line: str) -> list[str]:
    """Return `line` split into lines of at most 88 columns where black would split it.

    The last bracket is opened up: its content goes on a line of its own, or,
    if that is too long, one element to a line with a comma behind each. A
    sum or product is put in brackets and split in front of its operators.
    """
    if len(line) <= WIDTH:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    text = line.strip()
    trailers = _TRAILERS.search(text)
    if trailers is not None:
        *first, last = _open_bracket(text[: trailers.start()], indent)
        return [*first, last + trailers.group()]
    if text.rstrip(":")[-1] in _CLOSING:
        return _open_bracket(text, indent)
    for word in ("return", " ="):
        head, found, value = text.partition(f"{word} ")
        if found and (word == " =" or not head):
            inner = _split_sum(value, indent + "    ")
            return [f"{indent}{head}{word} (", *inner, f"{indent})"]
    return [line]


def split_elements(body: str) -> list[str]:
    """Split at the commas that stand outside brackets and strings."""
    places = [place for place, letter in _outside(body) if letter == ","]
    parts = [
        body[start:end].strip()
        for start, end in zip([0, *[place + 1 for place in places]], [*places, None], strict=True)
    ]
    return [part for part in parts if part]


def _open_bracket(text: str, indent: str) -> list[str]:
    colon = ":" if text.endswith(":") else ""
    text = text.removesuffix(":")
    opening = _opening(text)
    head, body, tail = text[: opening + 1], text[opening + 1 : -1], text[-1] + colon
    inner = indent + "    "
    if len(inner + body) <= WIDTH:
        return [indent + head, inner + body, indent + tail]
    elements = [f"{inner}{element}," for element in split_elements(body)]
    return [indent + head, *elements, indent + tail]


def _split_sum(value: str, indent: str) -> list[str]:
    """Split in front of sums, and products of what is still too long."""
    if len(indent + value) <= WIDTH:
        return [indent + value]
    for operators in ("+-", "*/"):
        places = [
            place
            for place, letter in _outside(value)
            if letter in operators and value[place - 1 : place + 2] == f" {letter} "
        ]
        if places:
            cuts = itertools.pairwise([0, *places, len(value)])
            parts = [value[start:end].strip() for start, end in cuts]
            return [line for part in parts for line in _split_sum(part, indent)]
    return [indent + value]


def _outside(text: str) -> list[tuple[int, str]]:
    """Return the places and letters that stand outside brackets and strings."""
    found, depth, is_quoted = [], 0, False
    for place, letter in enumerate(text):
        if letter == '"':
            is_quoted = not is_quoted
        elif is_quoted:
            continue
        elif letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
        elif depth == 0:
            found.append((place, letter))
    return found


def _opening(text: str) -> int:
    """Return the place of the bracket that the last letter closes."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        if text[place] in _CLOSING:
            depth += 1
        elif text[place] in _OPENING:
            depth -= 1
            if depth == 0:
                return place
    raise AssertionError(f"unbalanced brackets in {text!r}")
