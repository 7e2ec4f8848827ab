"""What a script writes stays in memory, in its first run and in those after it; what cannot be kept there is said.

Each script runs in a process of its own, as the parent runs it, without TensorFlow. Where the system allows no mounts,
the tests that need them are skipped.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
import tempfile
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.scripts import run_script, why_nothing_is_kept
from xttsbench.records.code import OUTSIDE, ScriptAgain, ScriptData, ScriptRun
from xttsbench.records.trial import TrialSpec
from xttsbench.workflows.optimize import said_writes, why_not_again

REFUSED = why_nothing_is_kept()
redirects = pytest.mark.skipif(REFUSED is not None, reason=f"nothing can be kept in memory here: {REFUSED}")
as_root = pytest.mark.skipif(os.getuid() != 0, reason="the root directory can be written to by root only")
NAME = f"xttsbench-test-{os.getpid()}"


class Ran(NamedTuple):
    run: ScriptRun
    failure: dict[str, Any]
    output: str


class Script:
    """Runs one, in a folder of its own: for the first time, or again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.directory = folder, folder / "run"
        self.directory.mkdir()

    def run(self, code: str, *, again: bool = False, before: str = "", keep: bool = False, **how: Any) -> Ran:
        script = self.folder / "script.py"
        script.write_text(code)
        known = ScriptAgain(data=ScriptData(kind=0), directory=str(self.directory)) if again else None
        private = None if keep or again else str(self.directory)
        kind: Any = "arm" if again else "script"
        spec = TrialSpec(trial_id="t", kind=kind, target=str(script), script=known, private=private)
        messages, done = run_script(spec, before=before, cwd=self.folder, start_new_session=True, **how)
        assert messages[-1:] == [{"done": True}], done.stderr
        told = [message["value"] for message in messages if message.get("part") == "script"]
        failures = [message for message in messages if "status" in message]
        return Ran(ScriptRun(**(told[-1] if told else {})), (failures or [{}])[-1], done.stdout + done.stderr)


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def places() -> list[Path]:
    """Every directory below the root that this user can write to, and some within."""
    found = [Path("/") / name for name in os.listdir("/") if name not in ("proc", "sys", "dev", "old_root")]
    found += [Path(one) for one in ("/dev/shm", "/usr/local", "/var/tmp", "/run/lock", Path.home())]
    return sorted({one.resolve() for one in found if one.is_dir() and os.access(one, os.W_OK)})


WRITES = """
import json, os, subprocess, sys
for place in {places}:
    path = os.path.join(place, {name!r})
    open(path, "w").write("mine")
    assert open(path).read() == "mine"
    subprocess.run(["/bin/sh", "-c", 'echo more > "$0.sh"', path], check=True)
open("kept.txt", "a").write("more")
os.remove("gone.txt")
"""


@redirects
@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_nothing_is_written_to_any_folder(script, again: bool) -> None:
    own = [*map(str, places()), str(script.folder)]
    (script.folder / "kept.txt").write_text("as it was")
    (script.folder / "gone.txt").write_text("here")
    try:
        ran = script.run(WRITES.format(places=own, name=NAME), again=again)
        left = [one for place in own for one in (f"{place}/{NAME}", f"{place}/{NAME}.sh") if os.path.lexists(one)]
        assert left == []
    finally:
        for place in own:
            for one in (f"{place}/{NAME}", f"{place}/{NAME}.sh"):
                Path(one).unlink(missing_ok=True)
    assert (script.folder / "kept.txt").read_text() == "as it was"
    assert (script.folder / "gone.txt").read_text() == "here"
    assert not list(script.directory.iterdir())
    if again:
        assert ran.failure["cause"] == "the script ended before it imported TensorFlow", ran.output
    else:
        assert (ran.run.ended, ran.run.in_memory, ran.run.uncovered) == ("returned", 2 * len(own) + 2, ()), ran.output
        said = said_writes(ran.run)
        assert said is not None
        assert said.startswith(f"the script's writes were kept in memory and are gone: {2 * len(own) + 2} files (")
        assert said.endswith("--keep-writes keeps them")


ENDS_EARLY = """
import atexit, os
from xttsbench.worker.channel import StoppedByUs  # as when enough steps are measured

def save():
    open("model.h5", "w").write("two epochs")

atexit.register(lambda: open("model.h5", "a").write(" and an exit handler"))
try:
    raise StoppedByUs("enough")
finally:
    save()
    print(open("model.h5").read())
"""


@redirects
def test_a_model_is_not_overwritten_by_a_run_that_is_cut_short(script) -> None:
    model = script.folder / "model.h5"
    model.write_text("a good one")
    ran = script.run(ENDS_EARLY)
    assert model.read_text() == "a good one"
    assert "two epochs" in ran.output
    assert ran.run.wrote == (str(model),)
    script.run(ENDS_EARLY, keep=True)
    assert model.read_text() == "two epochs and an exit handler"


@redirects
@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_another_user_writes_where_that_user_may_and_nothing_stays(script) -> None:
    for folder in (script.folder, script.directory):
        folder.chmod(0o777)
    for folder in script.folder.parents:
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(0o711)
    code = f"""
import os
for place in ("/etc", "/usr/local", "/var/tmp", "/tmp", "."):
    try:
        open(os.path.join(place, {NAME!r}), "w").write("x")
        print(place, "written")
    except OSError as error:
        print(place, error.strerror)
"""
    become = "import os, pkgutil\nos.setgroups([])\nos.setgid(12345)\nos.setuid(12345)\n"
    become += "import ctypes\nctypes.CDLL(None).prctl(4, 1, 0, 0, 0)"  # as after exec: /proc/self is its own
    ran = script.run(code, before=become, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})
    assert ran.failure == {}
    refused = "Permission denied"
    assert ran.output.splitlines() == [
        f"/etc {refused}",
        f"/usr/local {refused}",
        "/var/tmp written",
        "/tmp written",
        ". written",
    ]
    assert ran.run.in_memory == 3
    assert not [one for one in ("/var/tmp", "/tmp", script.folder) if Path(one, NAME).exists()]


@redirects
@as_root
def test_what_cannot_be_covered_is_written_once_and_not_again(script) -> None:
    path = Path("/", NAME)
    code = f"open({str(path)!r}, 'w').write('x')"
    try:
        ran = script.run(code)
        assert path.exists()
        assert (ran.run.uncovered, ran.run.in_memory) == ((str(path),), 0)
        assert said_writes(ran.run) == f"the script wrote {path} for good: it could not be kept in memory"
        path.unlink()
        told = script.run(code, again=True)
        assert not path.exists()
        assert told.failure["cause"].startswith(f"{OUTSIDE}: it would write {path}")
        by_program = f"import subprocess; print(subprocess.run(['/bin/sh', '-c', 'echo > {path}']).returncode)"
        script.run(by_program, again=True)
        assert not path.exists()
    finally:
        path.unlink(missing_ok=True)


@redirects
def test_more_than_fits_into_memory_is_a_full_disk_and_said(script) -> None:
    small = "overlays.obtainable_bytes = lambda: 4 << 20"
    ran = script.run("open('large', 'wb').write(bytes(8 << 20))", before=small)
    assert ran.failure["cause"] == (
        "what the script wrote did not fit into the 0.00098 GiB of memory where it was kept. "
        "Say --keep-writes if it may write to the disk."
    )
    assert "No space left on device" in ran.output
    assert not (script.folder / "large").exists()


def without_namespaces() -> None:
    """A seccomp filter as that of many containers: ``unshare`` is not permitted."""
    number = {"x86_64": 272, "aarch64": 97}[platform.machine()]
    steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
    program = b"".join(struct.pack("HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(program)
    head = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, head, 0, 0) == 0


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="the number of unshare is not known")
def test_without_private_mounts_a_run_proceeds_and_names_what_it_wrote(script, build) -> None:
    model = script.folder / "model.h5"
    model.write_text("a good one")
    ran = script.run(ENDS_EARLY, preexec_fn=without_namespaces)
    assert model.read_text() == "two epochs and an exit handler"
    assert ran.run.not_redirected is not None
    assert "Operation not permitted" in ran.run.not_redirected
    assert (ran.run.wrote, ran.run.in_memory) == ((str(model),), None)
    said = said_writes(ran.run)
    assert said is not None
    assert said.startswith(f"the script wrote {model} for good: writes cannot be kept in memory here (")
    seen = ran.run.model_copy(update={"data": ScriptData(kind=0)})
    why = why_not_again(build.run_plan(kind="optimize"), seen)
    assert why is not None
    assert why.endswith("Say --repeat if it may do so again.")


@pytest.fixture
def server(tmp_path: Path):
    """Serves one kind of socket and answers; what it was sent is in ``heard``."""

    class Server:
        heard: list[bytes]

        def __init__(self) -> None:
            self.heard, self._open = [], []

        def listen(self, family: int, address: Any) -> Any:
            listening = socket.socket(family)
            listening.bind(address)
            listening.listen()
            self._open.append(listening)
            threading.Thread(target=self._serve, args=(listening,), daemon=True).start()
            return listening.getsockname()

        def _serve(self, listening: socket.socket) -> None:
            while True:
                try:
                    with listening.accept()[0] as one:
                        self.heard.append(one.recv(100))
                        one.sendall(b"answer")
                except OSError:
                    return

        def close(self) -> None:
            for one in self._open:
                one.close()

    serving = Server()
    yield serving
    serving.close()


TALKS = """
import socket
with socket.socket({family}) as one:
    one.connect({address!r})
    one.sendall(b"a run")
    print(one.recv(100))
"""


@pytest.mark.parametrize("kind", ["tcp", "tcp6", "unix", "abstract"])
def test_a_server_of_this_machine_is_a_contact_and_hears_no_second_run(script, server, kind: str) -> None:
    family = {"tcp": socket.AF_INET, "tcp6": socket.AF_INET6}.get(kind, socket.AF_UNIX)
    own: Any = {"tcp": ("127.0.0.1", 0), "tcp6": ("::1", 0), "unix": str(script.folder / "socket")}
    try:
        address = server.listen(family, own.get(kind, f"\0{NAME}"))
    except OSError as error:
        pytest.skip(f"no such socket here: {error}")
    plain = address.decode() if isinstance(address, bytes) else address
    code = TALKS.format(family=int(family), address=plain)
    ran = script.run(code)
    assert server.heard == [b"a run"], ran.output
    assert "answer" in ran.output
    (contacted,) = ran.run.contacted
    assert contacted == (
        f"{plain[0]}:{plain[1]}" if kind.startswith("tcp") else f"the UNIX socket {plain}".replace("\0", "@")
    )
    seen = ran.run.model_copy(update={"data": ScriptData(kind=0)})
    assert "which another run would do again" in str(why_not_again(_plan(), seen))
    if REFUSED is None:
        told = script.run(code, again=True)
        assert told.failure["cause"].startswith(f"{OUTSIDE}: it would connect to {contacted}")
        assert server.heard == [b"a run"]


def _plan() -> Any:
    from tests.unit.conftest import run_plan

    return run_plan(kind="optimize")


OWN = {
    "manager": "import multiprocessing\nwith multiprocessing.Manager() as one:\n    print(len(one.list([1])))",
    "asyncio": "import asyncio\nasyncio.run(asyncio.sleep(0))",
    "pair": "import socket\na, b = socket.socketpair()\na.send(b'x')",
    "thread": """
import socket, threading
with socket.create_server(("127.0.0.1", 0)) as serving:
    threading.Thread(target=lambda: serving.accept()[0].sendall(b"x"), daemon=True).start()
    with socket.create_connection(("localhost", serving.getsockname()[1])) as one:
        one.recv(1)
""",
    "program": """
import socket, subprocess, sys
served = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); s.accept()"
with subprocess.Popen([sys.executable, "-c", served], stdout=subprocess.PIPE, text=True) as child:
    socket.create_connection(("127.0.0.1", int(child.stdout.readline()))).close()
""",
    "shared memory": """
from multiprocessing import shared_memory
one = shared_memory.SharedMemory(create=True, size=10)
shared_memory.SharedMemory(one.name).close()
one.close()
one.unlink()
""",
    "pool": "import multiprocessing\nwith multiprocessing.Pool(2) as one:\n    print(one.map(abs, [1]))",
}


@pytest.mark.parametrize("name", OWN)
def test_what_a_script_s_own_processes_say_to_each_other_is_no_contact(script, name: str) -> None:
    ran = script.run(f"if __name__ == '__main__':\n    {OWN[name].replace(chr(10), chr(10) + '    ')}")
    assert (ran.run.ended, ran.run.contacted, ran.run.uncovered) == ("returned", (), ()), ran.output


def test_a_connection_that_a_program_of_the_script_s_holds_is_a_contact(script, server) -> None:
    host, port = server.listen(socket.AF_INET, ("127.0.0.1", 0))
    waits = f"import socket; s = socket.create_connection(({host!r}, {port})); print(flush=True); input()"
    code = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {waits!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
"""
    assert script.run(code).run.contacted == (f"{host}:{port}",)


def test_a_named_pipe_leads_to_who_reads_it_and_is_a_contact(script) -> None:
    pipe, heard = script.folder / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()), daemon=True)
    reader.start()
    ran = script.run("open('pipe', 'w').write('news')")
    reader.join(5)
    assert heard == ["news"]
    assert ran.run.contacted == (f"the named pipe {pipe}",)
    own = "import os, threading\nos.mkfifo('own')\n"
    own += "threading.Thread(target=lambda: open('own').read()).start()\nopen('own', 'w')"
    assert script.run(own).run.contacted == (() if REFUSED is None else (f"the named pipe {script.folder}/own",))


def test_a_segment_of_shared_memory_that_others_made_is_a_contact(script) -> None:
    from multiprocessing import shared_memory

    held = shared_memory.SharedMemory(create=True, size=16)
    try:
        code = "from multiprocessing import shared_memory, resource_tracker\n"
        code += f"one = shared_memory.SharedMemory({held.name!r})\none.close()\n"
        ran = script.run(code + "resource_tracker.unregister(one._name, 'shared_memory')")
        assert ran.run.contacted == (f"the shared memory /{held.name}",)
    finally:
        held.close()
        held.unlink()
