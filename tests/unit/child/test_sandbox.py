"""Ways out of a child, tried from inside a job: open without the sandbox, closed with it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from children import answer, config_in

import opsgen
from opsgen.child import Child, describe_layers

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="as an ordinary user some of this fails without a sandbox as well"
)

NAME = f".opsgen-escape-{os.getpid()}"


@pytest.fixture(scope="module", autouse=True)
def _layers() -> None:
    missing = [layer for layer in describe_layers() if not layer.holds]
    if missing:
        pytest.skip(f"no {missing[0].name} layer here: {missing[0].obstacle}")


@pytest.fixture(scope="module", params=[False, True], ids=["open", "sandboxed"])
def is_shut(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def child(is_shut: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    config = config_in(tmp_path_factory.mktemp("escapes"), sandbox=is_shut)
    with Child(config) as child:
        yield child


@pytest.fixture
def check(child: Child, is_shut: bool) -> Callable[[str], float]:
    """Return a function that tries something, which must fail in the sandbox and only there."""

    def try_out(what: str) -> float:
        number = answer(child, f"attempt:{what}").metrics["errno"]
        assert (number != 0.0) == is_shut, (what, os.strerror(int(number)))
        return number

    return try_out


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the user who runs the supervisor."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.fixture
def spot() -> Iterator[Path]:
    """A folder of the machine's that neither users nor temporary files lie in."""
    folder = Path("/var/lib") / NAME
    folder.mkdir()
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def other(tmp_path: Path, is_shut: bool) -> Iterator[Path]:
    """The folder for temporary files of another child."""
    with Child(config_in(tmp_path, sandbox=is_shut)) as child:
        answer(child)
        yield next(path for path in (tmp_path / "work").rglob("tmp"))


def test_no_server_of_this_machine_can_be_reached(check: Callable[[str], float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        # Nobody need accept: the kernel connects whoever it may, up to a backlog.
        check(f"connect,127.0.0.1:{server.getsockname()[1]}")


def test_no_datagram_leaves(check: Callable[[str], float]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.bind(("127.0.0.1", 0))
        check(f"send_datagram,127.0.0.1:{end.getsockname()[1]}")


@pytest.mark.parametrize("where", ["visible", "hidden", "nameless"])
def test_no_local_socket_can_be_reached(
    check: Callable[[str], float], where: str, spot: Path, tmp_path: Path
) -> None:
    name = {"visible": str(spot / "s"), "hidden": str(tmp_path / "s"), "nameless": f"@{NAME}"}
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name[where].replace("@", "\0"))
        if where != "nameless":
            Path(name[where]).chmod(0o777)
        server.listen()
        check(f"connect_local,{name[where]}")


@pytest.mark.parametrize(
    "folder", [Path.home(), Path("/tmp"), Path("/"), Path(opsgen.__file__).parent]
)
def test_nothing_can_be_written_outside(
    check: Callable[[str], float], folder: Path, is_shut: bool
) -> None:
    path = folder / NAME
    try:
        check(f"write,{path}")
        assert path.exists() != is_shut
    finally:
        path.unlink(missing_ok=True)


def test_shared_memory_is_not_shared(child: Child, is_shut: bool) -> None:
    path = Path("/dev/shm") / NAME
    answer(child, f"attempt:write,{path}")
    assert path.exists() != is_shut
    path.unlink(missing_ok=True)


def test_open_files_of_others_cannot_be_changed(check: Callable[[str], float], spot: Path) -> None:
    path = spot / "open"
    path.write_text("kept")
    path.chmod(0o666)
    for what in ("write", "truncate", "change_mode", "remove"):
        check(f"{what},{path}")
    check(f"make_folder,{spot / 'folder'}")


def test_the_folder_of_another_child_is_out_of_reach(
    check: Callable[[str], float], other: Path
) -> None:
    check(f"write,{other / 'planted'}")
    (other / "answer").write_text("42")
    check(f"read,{other / 'answer'}")
    check(f"list,{other}")


def test_the_lock_of_the_own_folder_stays(check: Callable[[str], float], child: Child) -> None:
    answer(child)
    assert child.config.work_dir
    (lock,) = Path(child.config.work_dir).glob("*/owner.lock")
    check(f"truncate,{lock}")


def test_secrets_cannot_be_read(check: Callable[[str], float], tmp_path: Path, spot: Path) -> None:
    (tmp_path / "open").write_text("secret")
    (tmp_path / "open").chmod(0o644)
    (spot / "closed").write_text("secret")
    (spot / "closed").chmod(0o600)
    check(f"read,{tmp_path / 'open'}")
    check(f"read,{spot / 'closed'}")
    check(f"list,{tmp_path}")


def test_secrets_in_variables_do_not_come_along(
    is_shut: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    with Child(config_in(tmp_path, sandbox=is_shut)) as child:
        found = answer(child, "attempt:read_variable,HF_TOKEN").metrics["errno"] == 0.0
        assert found != is_shut
        assert answer(child, "attempt:read_variable,PATH").metrics["errno"] == 0.0


def test_no_process_can_be_signalled(
    check: Callable[[str], float], victim: subprocess.Popen[bytes], is_shut: bool
) -> None:
    check(f"signal,{victim.pid}")
    if is_shut:
        assert victim.poll() is None
    else:
        assert victim.wait(5.0) == -signal.SIGUSR1


def test_no_process_can_be_traced_or_read(
    check: Callable[[str], float], victim: subprocess.Popen[bytes]
) -> None:
    check(f"open_memory,{victim.pid}")
    check(f"read,/proc/{victim.pid}/environ")
    check(f"trace,{victim.pid}")


def test_the_supervisor_cannot_be_read(check: Callable[[str], float]) -> None:
    check(f"open_memory,{os.getpid()}")
    check(f"read,/proc/{os.getpid()}/environ")
    check(f"list,/proc/{os.getpid()}/root/{Path.home()}")


def test_another_child_cannot_be_signalled_or_read(
    check: Callable[[str], float], tmp_path: Path, is_shut: bool
) -> None:
    with Child(config_in(tmp_path, sandbox=is_shut)) as other:
        pid = answer(other).pid
        check(f"open_memory,{pid}")
        check(f"trace,{pid}")
        check(f"signal,{pid}")


def test_rights_do_not_come_back(check: Callable[[str], float], spot: Path) -> None:
    check("become,0")
    check("unshare,")
    check(f"mount,{spot}")


def test_programs_lend_nobody_their_owners_rights(
    check: Callable[[str], float], spot: Path
) -> None:
    program = Path(shutil.copy(shutil.which("id") or "/usr/bin/id", spot / "id"))
    program.chmod(0o4755)
    check(f"run_as_owner,{program}")


def test_files_threads_and_descriptors_are_limited(check: Callable[[str], float]) -> None:
    check("grow,64")
    check("start_threads,600")


def test_the_machine_offers_more_descriptors_than_a_task_gets(child: Child, is_shut: bool) -> None:
    assert (answer(child, "attempt:open_many,5000").metrics["errno"] != 0.0) == is_shut
