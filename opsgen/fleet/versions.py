"""All hosts of a fleet must run the same software: Dask only warns of differences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distributed import Client

from opsgen.errors import UsageError

PACKAGES = ("python", "dask", "distributed", "msgspec", "opsgen")
"""What must agree; of Python the major and minor version."""


def check_versions(client: Client) -> None:
    """Hold that this process, the scheduler and all workers agree on `PACKAGES`.

    Raises:
        UsageError: Somebody differs; the line names the first who does and how.
    """
    # Other packages' differences matter to Dask users that send arrays: we send bytes.
    found: Any = client.get_versions(check=False, packages=["msgspec", "opsgen"])
    here = _versions(found["client"])
    for who, node in _nodes(found):
        there = _versions(node)
        for name in PACKAGES:
            if there[name] != here[name]:
                version = there[name] or "none"
                raise UsageError(f"{who} has {name} {version}, this process {here[name]}")


def _nodes(found: Any) -> Iterator[tuple[str, Any]]:
    yield "the scheduler", found["scheduler"]
    for address, node in sorted(found["workers"].items()):
        yield f"the worker {address}", node


def _versions(node: Any) -> dict[str, str | None]:
    packages = (node or {}).get("packages", {})
    versions: dict[str, str | None] = {name: packages.get(name) for name in PACKAGES}
    if versions["python"]:
        versions["python"] = ".".join(versions["python"].split(".")[:2])
    return versions
