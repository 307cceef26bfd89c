"""From a TOML file and overrides to a `Recipe`, or to one line that says what is wrong."""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from opsgen.errors import UsageError
from opsgen.recipe.schema import FleetConfig, Recipe
from opsgen.records import MODES

_AUTOTUNING = ("race", "full")
_WEAK = ("reject", "label")
_AT = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")


def read_recipe(path: Path, overrides: tuple[str, ...] = ()) -> Recipe:
    """Read a recipe.

    Args:
        path: The TOML file.
        overrides: `a.b=value` each, the value in TOML (a bare word is a string).

    Raises:
        UsageError: The file cannot be read, is not TOML, or a key or value is wrong; the
            message names file, key and, for an unknown key, the nearest valid one.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8 text") from error
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: is not TOML: {error}") from error
    for override in overrides:
        _apply_override(tree, override)
    return convert_recipe(tree, str(path))


def convert_recipe(tree: dict[str, Any], where: str) -> Recipe:
    """Check a tree of plain values against the recipe's schema.

    Raises:
        UsageError: A key or value is wrong; the message starts with `where`.
    """
    _check_keys(tree, Recipe, (), where)
    try:
        recipe = msgspec.convert(tree, Recipe)
    except msgspec.ValidationError as error:
        match = _AT.search(str(error))
        key = match["path"] if match else "recipe"
        message = _AT.sub("", str(error)).replace("`", "").replace("Object", "recipe")
        raise UsageError(f"{where}: {key or 'recipe'}: {_lowered(message)}") from error
    _check_values(recipe, where)
    return _with_all_deadlines(recipe)


def write_recipe(recipe: Recipe) -> str:
    """Return a recipe as TOML with every default written out; reading it gives it back."""
    tree = msgspec.to_builtins(recipe)
    lines = [
        f"{key} = {_toml(value)}" for key, value in tree.items() if not isinstance(value, dict)
    ]
    for section, values in tree.items():
        if isinstance(values, dict):
            lines += ["", f"[{section}]"]
            lines += [
                f"{key} = {_toml(value)}" for key, value in values.items() if value is not None
            ]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()
    if isinstance(value, dict):
        inner = ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return repr(value)


def _apply_override(tree: dict[str, Any], override: str) -> None:
    path, found, text = override.partition("=")
    keys = path.strip().split(".")
    if not found or not all(keys):
        raise UsageError(f"--set {override}: write it as key=value, such as measure.device=cpu")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    node = tree
    for key in keys[:-1]:
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            raise UsageError(f"--set {override}: {key} is a value, not a section")
    node[keys[-1]] = value


def _check_keys(
    tree: dict[str, Any], kind: type[msgspec.Struct], path: tuple[str, ...], where: str
) -> None:
    known = {known.name: known.type for known in msgspec.structs.fields(kind)}
    for key, value in tree.items():
        full = ".".join((*path, key))
        if key not in known:
            raise UsageError(f"{where}: unknown key {full}{_nearest(key, path)}")
        inner = known[key]
        is_section = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
        if is_section and isinstance(value, dict):
            _check_keys(value, inner, (*path, key), where)
        elif is_section:
            raise UsageError(f"{where}: {full}: is a section; write [{full}]")


def _nearest(key: str, path: tuple[str, ...]) -> str:
    """Name the valid key that comes nearest, from the same section first."""
    sections = {(): Recipe} | {
        (known.name,): known.type
        for known in msgspec.structs.fields(Recipe)
        if isinstance(known.type, type) and issubclass(known.type, msgspec.Struct)
    }
    valid = {
        ".".join((*section, known.name)): section
        for section, kind in sections.items()
        for known in msgspec.structs.fields(kind)
    }
    here = {full.rpartition(".")[2]: full for full, section in valid.items() if section == path}
    anywhere = {full.rpartition(".")[2]: full for full in valid}
    for names, cutoff in ((here, 0.6), (anywhere, 0.75), (here, 0.0)):
        close = difflib.get_close_matches(key, names, n=1, cutoff=cutoff)
        if close:
            return f"; did you mean {names[close[0]]}?"
    return ""


def _check_values(recipe: Recipe, where: str) -> None:
    """Hold what the types cannot say."""
    release, admit, sample = recipe.release, recipe.admit, recipe.sample
    low, high = admit.runtime_window_ms
    checks = (
        (recipe.measure.device in ("cpu", "cuda"), "measure.device", "is neither cpu nor cuda"),
        *_check_modes(recipe.measure.modes),
        (
            recipe.measure.autotuning in _AUTOTUNING,
            "measure.autotuning",
            f"is none of {', '.join(_AUTOTUNING)}",
        ),
        (admit.weak_at_1e_2 in _WEAK, "admit.weak_at_1e_2", f"is none of {', '.join(_WEAK)}"),
        (admit.contamination in _WEAK, "admit.contamination", f"is none of {', '.join(_WEAK)}"),
        (low < high, "admit.runtime_window_ms", "wants low < high"),
        (sample.target_ms[0] <= sample.target_ms[1], "sample.target_ms", "wants low <= high"),
        (sum(sample.dtypes.values()) > 0, "sample.dtypes", "adds up to nothing"),
        (sum(release.want.values()) > 0, "release.want", "wants nothing"),
        (sum(release.split.values()) > 0, "release.split", "adds up to nothing"),
        (
            all(re.fullmatch(r"[a-z0-9_]+", name) for name in release.split),
            "release.split",
            "has a name that is no word of a-z, 0-9 and _",
        ),
    )
    for holds, key, message in checks:
        if not holds:
            raise UsageError(f"{where}: {key}: {message}")
    unknown = sorted(recipe.fleet.deadlines_s.keys() - FleetConfig().deadlines_s.keys())
    if unknown:
        stages = ", ".join(FleetConfig().deadlines_s)
        raise UsageError(f"{where}: fleet.deadlines_s: {unknown[0]} is none of {stages}")


def _check_modes(modes: tuple[str, ...]) -> tuple[tuple[bool, str, str], ...]:
    key = "measure.modes"
    unknown = [mode for mode in modes if mode not in MODES]
    return (
        (not unknown, key, f"{', '.join(unknown)} is none of {', '.join(MODES)}"),
        ({"eager", "compile"} <= set(modes), key, "lacks eager or compile"),
        (len(set(modes)) == len(modes), key, "names a mode twice"),
    )


def _with_all_deadlines(recipe: Recipe) -> Recipe:
    deadlines_s = {**FleetConfig().deadlines_s, **recipe.fleet.deadlines_s}
    replace = msgspec.structs.replace
    return replace(recipe, fleet=replace(recipe.fleet, deadlines_s=deadlines_s))


def _lowered(message: str) -> str:
    return message[:1].lower() + message[1:]
