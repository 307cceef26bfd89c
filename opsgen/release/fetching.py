"""Sources of tasks by name: a path here, or a dataset on the Hub whose tables are fetched.

Datasets go into the Hub's own cache, so a revision is fetched once. What
cannot be had is told in one line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from opsgen.errors import UsageError

_DATASET = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FILES = (".py", ".parquet", ".jsonl", ".gz", ".toml", ".json")
_PATTERNS = ["*.parquet", "*.jsonl", "*.jsonl.gz"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where tasks are read from.

    Attributes:
        path: A file or folder.
        label: What stands for the path in origins: the path as it was given, or the dataset
            with its commit.
        name: A short name.
    """

    path: Path
    label: str
    name: str


def find_source(given: str, *, revision: str | None = None) -> Source:
    """Return the source that a path or a dataset id such as `owner/name` means.

    A path that exists is always meant as one, and so is what looks like a misspelt one: a
    file's name, or something in a folder that is there.

    Args:
        given: Path or dataset id.
        revision: Branch, tag or commit of the dataset; None for its main branch.

    Raises:
        UsageError: There is neither, or the dataset cannot be fetched; one line.
    """
    path = Path(given)
    if path.exists():
        if revision is not None:
            raise UsageError(f"{given}: is a path here, which has no revision {revision}")
        name = path.name if path.is_dir() else path.name.partition(".")[0]
        return Source(path=path, label=given.rstrip("/"), name=name or path.resolve().name)
    is_dataset = _DATASET.fullmatch(given) and not given.endswith(_FILES)
    if not is_dataset or path.parent.exists():
        raise UsageError(f"{given}: No such file or directory")
    folder = fetch_dataset(given, revision=revision)
    return Source(path=folder, label=f"{given}@{folder.name}", name=path.name)


def fetch_dataset(repo_id: str, *, revision: str | None = None) -> Path:
    """Fetch the parquet and JSONL files of a dataset and return their folder.

    The Hub's variables hold, such as HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE; offline, what
    the cache has is returned. The folder's name is the commit.

    Raises:
        UsageError: The dataset is missing, private, gated or without tables, or the Hub cannot
            be reached.
    """
    # Imported late: it takes a while, and paths do not need it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    # The HTTP library below changes with the client's version; its errors are no OSError.
    http_error: type[Exception] = HfHubHTTPError.__bases__[0]
    try:
        found = snapshot_download(
            repo_id, repo_type="dataset", revision=revision, allow_patterns=_PATTERNS
        )
    except GatedRepoError as error:
        why = "is gated: accept its terms on the Hub, and log in with `hf auth login`"
        raise UsageError(f"{repo_id}: {why}") from error
    except RevisionNotFoundError as error:
        raise UsageError(f"{repo_id}: the dataset has no revision {revision}") from error
    except RepositoryNotFoundError as error:
        why = "no such path here and no such dataset on the Hub, or it is private"
        raise UsageError(f"{repo_id}: {why}") from error
    except (OSError, ValueError, http_error) as error:
        why = "no such path here, and no such dataset can be fetched from the Hub"
        raise UsageError(f"{repo_id}: {why}: {_reason(error)}") from error
    folder = Path(found)
    if not any(folder.rglob("*.parquet")) and not any(folder.rglob("*.jsonl*")):
        raise UsageError(f"{repo_id}: the dataset has no parquet or JSONL file")
    return folder


def _reason(error: BaseException) -> str:
    """Return in a line what lies at the bottom of an error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:200] or type(error).__name__
