"""Long lines, split the way black splits them."""

from __future__ import annotations

WIDTH = 88
_PAIRS = {")": "(", "]": "[", "}": "{"}


def fit_line(line: str) -> list[str]:
    """Return `line` split into lines of at most 88 columns where black would split it.

    The last bracket is opened up: its content goes on a line of its own, or,
    if that is too long, one element to a line with a comma behind each.
    """
    if len(line) <= WIDTH:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    text = line.strip()
    colon = ":" if text.endswith(":") else ""
    text = text.removesuffix(":")
    if text[-1] not in _PAIRS:
        for start in ("return ", "="):
            head, found, value = text.partition(start)
            if found and (start == "=" or not head):
                return [
                    f"{indent}{head}{found.rstrip()} (",
                    f"{indent}    {value.strip()}",
                    f"{indent})",
                ]
        return [line]
    opening = _opening(text)
    head, body, tail = text[: opening + 1], text[opening + 1 : -1], text[-1] + colon
    inner = indent + "    "
    if len(inner + body) <= WIDTH:
        return [indent + head, inner + body, indent + tail]
    elements = [f"{inner}{element}," for element in split_elements(body)]
    return [indent + head, *elements, indent + tail]


def split_elements(body: str) -> list[str]:
    """Split at the commas that stand outside brackets and strings."""
    elements, depth, start, quoted = [], 0, 0, False
    for place, letter in enumerate(body):
        if letter == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth == 0:
            elements.append(body[start:place].strip())
            start = place + 1
    elements.append(body[start:].strip())
    return [element for element in elements if element]


def _opening(text: str) -> int:
    """Return the place of the bracket that the last letter closes."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        if text[place] in ")]}":
            depth += 1
        elif text[place] in "([{":
            depth -= 1
            if depth == 0:
                return place
    raise AssertionError(f"unbalanced brackets in {text!r}")
