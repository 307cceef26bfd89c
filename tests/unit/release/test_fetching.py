"""Dataset ids are fetched from a stand-in for the Hub; what cannot be had is one line."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from opsgen.errors import UsageError
from opsgen.release.fetching import find_source

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "README.md": b"# not wanted\n",
    "load.py": b"raise RuntimeError('a script of the dataset')\n",
    "data/train.jsonl": b'{"code": "x = 1", "ops": "a"}\n{"code": null}\n',
    "data/more.jsonl": b'{"code": "y = 1", "data_source": "torch#3"}\n',
}
PROGRAM = """
import sys
from opsgen.errors import UsageError
from opsgen.release.fetching import find_source
from opsgen.source import read_tasks
try:
    source = find_source(sys.argv[1], revision=sys.argv[2] or None)
except UsageError as error:
    print(error)
else:
    print(source.label, source.name)
    for task in read_tasks(source.path):
        print(task.origin.removeprefix(str(source.path)), task.code, task.level)
"""


class Hub(BaseHTTPRequestHandler):
    """As much of the Hub as a snapshot takes: the repository, its files, and each of them."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        status, body, headers = 200, b"", {}
        if "own/gated" in path:
            status, headers = 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"}
        elif "own/tasks" not in path and "own/bare" not in path:
            status, headers = 404, {"X-Error-Code": "RepoNotFound"}
        elif "nowhere" in path:
            status, headers = 404, {"X-Error-Code": "RevisionNotFound"}
        elif "/resolve/" in path:
            body = FILES[path.partition(f"{COMMIT}/")[2]]
            headers = {"ETag": f'"{hashlib.sha1(body).hexdigest()}"', "X-Repo-Commit": COMMIT}
        elif "/tree/" in path:
            names = ["README.md"] if "own/bare" in path else list(FILES)
            body = json.dumps([entry(name) for name in names]).encode()
        else:
            body = json.dumps({"id": "own/tasks", "sha": COMMIT, "siblings": []}).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def entry(name: str) -> dict[str, object]:
    return {
        "type": "file",
        "path": name,
        "size": len(FILES[name]),
        "oid": hashlib.sha1(FILES[name]).hexdigest(),
    }


@pytest.fixture
def endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def fetch(home: Path, repo_id: str, revision: str = "", **env: str) -> list[str]:
    # The client reads its variables when it is imported, hence a process of its own.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, repo_id, revision],
        env={**os.environ, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.check
def test_tables_of_a_dataset_are_read_and_kept(endpoint: str, tmp_path: Path) -> None:
    wanted = [
        f"own/tasks@{COMMIT} tasks",
        "/data/more.jsonl:0 y = 1 3",
        "/data/train.jsonl:0 x = 1 0",
        "/data/train.jsonl:1  0",
    ]
    assert fetch(tmp_path, "own/tasks", HF_ENDPOINT=endpoint) == wanted
    assert fetch(tmp_path, "own/tasks", HF_HUB_OFFLINE="1") == wanted


@pytest.mark.check
@pytest.mark.parametrize(
    ("repo_id", "revision", "words"),
    [
        ("own/gated", "", "is gated"),
        ("own/missing", "", "no such dataset"),
        ("own/tasks", "nowhere", "no revision nowhere"),
        ("own/bare", "", "no parquet or JSONL"),
    ],
)
def test_what_the_hub_refuses_is_one_line(
    endpoint: str, repo_id: str, revision: str, words: str, tmp_path: Path
) -> None:
    (line,) = fetch(tmp_path, repo_id, revision, HF_ENDPOINT=endpoint)
    assert line.startswith(f"{repo_id}: ")
    assert words in line


@pytest.mark.check
@pytest.mark.parametrize(
    "env", [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}], ids=["told", "dead"]
)
def test_no_hub_is_one_line(env: dict[str, str], tmp_path: Path) -> None:
    (line,) = fetch(tmp_path, "own/tasks", **env)
    assert line.startswith("own/tasks: no such path here")


@pytest.mark.parametrize(
    "given", ["tasks.py", "tasks/one.parquet", "a/b/c", "/no/where", "there/missing", "word", "."]
)
def test_what_looks_like_a_path_is_one(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    if given == ".":
        assert find_source(given).name == tmp_path.name
        return
    with pytest.raises(UsageError, match=f"^{given}: No such file or directory$"):
        find_source(given)
