"""Effects of a script's process, as it hears of them: loaded modules, written files, whom it talks to.

Python tells its audit hooks of every file that it opens and every connection that it makes. TensorFlow writes in C++,
which tells nobody, so the functions by which Python asks it to are wrapped. A socket is a script's own where a process
of its session listens at it: another run has it as well, while others hear each run. Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import psutil

from xttsbench.worker.script.again.overlays import Overlays, below

if TYPE_CHECKING:
    from xttsbench.worker.script.patches import Patches

MOST: Final = 20
"""Most entries of each kind that are kept."""
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES: Final = ("os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod")
_MADE: Final = ("tempfile.mkdtemp", "tempfile.mkstemp")
_NEVER: Final = ("/dev/fd/", "/dev/pts/", "/proc/self/", "/proc/thread-self/")
_NO_EFFECT: Final = (1, 5)  # Major numbers of /dev/null and its like, and of the terminal
_SENDS: Final = ("socket.connect", "socket.sendto", "socket.sendmsg")
_NAMES_ONLY: Final = ("/run/nscd/", "/var/run/nscd/", "/run/systemd/resolve/", "/run/systemd/userdb/")
"""Sockets that only look names up."""


class Effects:
    """Files written and machines or programs contacted, from when it is made until :meth:`end`.

    Args:
        overlays: what is, or could be, kept in memory of what is written; ``None`` where nothing could.
        refuse: called before what cannot be kept there is done, with a sentence that says what; it may raise.
    """

    def __init__(self, overlays: Overlays | None = None, refuse: Callable[[str], None] = lambda _: None) -> None:
        self.wrote: dict[str, None] = {}
        self.uncovered: dict[str, None] = {}
        """Written paths that are not kept in memory."""
        self.contacted: dict[str, None] = {}
        self._overlays, self._refuse = overlays, refuse
        self._temporary: set[str] = set()
        self._own: set[object] = set()  # addresses at which the script's own processes listen
        self._segments = frozenset(os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else ())
        self._active = True
        sys.addaudithook(self._heard)

    def end(self) -> None:
        """Hear no more; Python keeps the hook itself."""
        self._active = False

    def writes(self, path: Any) -> None:
        """Note that a path is written, unless it is of no matter: temporary, a device, or Python's own cache."""
        try:
            full = os.path.abspath(os.fsdecode(path))
            kind = os.stat(full).st_mode if os.path.exists(full) else 0
        except (TypeError, ValueError, OSError):  # a descriptor, or a tensor
            return
        if stat.S_ISFIFO(kind) and (self._overlays is None or self._overlays.reach(full)):
            self._contact(full, f"the named pipe {full}")
        if full.startswith(_NEVER) or (stat.S_ISCHR(kind) and os.major(os.stat(full).st_rdev) in _NO_EFFECT):
            return
        if _unimportant(full) or any(below(full, one) for one in self._temporary):
            return
        covered = self._overlays is not None and self._overlays.covers(full)
        if not covered and full not in self.uncovered and len(self.uncovered) < MOST:
            self.uncovered[full] = None
            self._refuse(f"it would write {full}")
        if len(self.wrote) < MOST:
            self.wrote[full] = None

    def record(self) -> dict[str, Any]:
        """Fields of a :class:`~xttsbench.records.code.ScriptRun`; of other processes what can still be seen."""
        wrote, kept = [*self.wrote], None
        if self._overlays is not None and self._overlays.memory >= 0:
            found = [one for one in self._overlays.written() if not _unimportant(one)]
            kept = [one for one in found if not any(below(one, folder) for folder in self._temporary)]
            wrote = [*self.uncovered, *kept] or wrote
        return {
            "wrote": tuple(wrote[:MOST]),
            "uncovered": tuple(self.uncovered) if self._overlays is not None else (),
            "contacted": tuple({**self.contacted, **dict.fromkeys(peers())})[:MOST],
            "in_memory": None if kept is None else len(kept),
        }

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if self._active:
            with contextlib.suppress(Exception):  # ours must not become the script's
                self._hear(event, args)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            asked = set(mode) & set("wax+") if isinstance(mode, str) else mode is None and flags & _WRITES
            if asked and not os.path.isdir(path):  # which a temporary file without a name opens
                self.writes(path)
        elif event in _CHANGES or (event == "os.mkdir" and not os.path.isdir(args[0])):
            self.writes(_found(args[0], args[-1]))
        elif event in _MADE:
            self._temporary.add(os.path.abspath(os.fsdecode(args[0])))
        elif event in _SENDS and args[1] is not None:
            family, address = args[0].family, args[1]
            if family == socket.AF_UNIX:
                name = os.fsdecode(address)
                self._contact(name, f"the UNIX socket {name.replace(chr(0), '@')}")
            elif family in (socket.AF_INET, socket.AF_INET6):
                self._contact(address[:2], f"{address[0]}:{address[1]}")

    def attaches(self, name: str) -> None:
        """Note that a segment of shared memory is opened, unless it was made meanwhile."""
        if name.lstrip("/") in self._segments:
            self._contact(name, f"the shared memory {name}")

    def _contact(self, address: object, name: str) -> None:
        if not self._active or address in self._own or name in self.contacted or len(self.contacted) >= MOST:
            return
        if is_own(address):
            self._own.add(address)
            return
        self.contacted[name] = None
        self._refuse(f"it would connect to {name}")


def _unimportant(path: str) -> bool:
    return "__pycache__" in path or "__autograph_generated" in path


def _found(path: Any, folder: Any) -> Any:
    """A path that is named from the descriptor of a directory on, as whoever removes a tree does, in full."""
    if not isinstance(folder, int) or folder < 0:
        return path
    try:
        return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))
    except (OSError, TypeError):
        return path


def is_own(address: object) -> bool:
    """Whether nobody but the script's own processes hears what is sent to an address: host and port, or a name."""
    if isinstance(address, str):
        names = (one.laddr for one in _held("unix"))
        return address.startswith(_NAMES_ONLY) or address.replace("\0", "@") in names
    if not isinstance(address, tuple):
        return False
    return _is_here(str(address[0])) and int(address[1]) in _ports()


def peers() -> list[str]:
    """``host:port`` of whoever else the script's processes are connected to now, in C++ or in a program, too."""
    ours, found = _ports(), set()
    for one in _held("tcp"):
        if one.status == psutil.CONN_ESTABLISHED and one.laddr.port not in ours:
            remote = ipaddress.ip_address(one.raddr.ip)
            host = str(getattr(remote, "ipv4_mapped", None) or remote)
            if not (one.raddr.port in ours and _is_here(host)):
                found.add(f"{host}:{one.raddr.port}")
    return sorted(found)


def _ports() -> set[int]:
    """TCP ports at which processes of this session listen."""
    return {one.laddr.port for one in _held("tcp") if one.status == psutil.CONN_LISTEN}


def _held(kind: str) -> Iterator[Any]:
    """Sockets of that kind that processes of this session hold."""
    session = os.getsid(0)
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):  # gone meanwhile
            if os.getsid(pid) == session:
                yield from psutil.Process(pid).net_connections(kind)


def _is_here(host: str) -> bool:
    """Whether a host is this machine."""
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return True
    if host in ("", "localhost", socket.gethostname()):
        return True
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as tried:
        tried.bind((host, 0))  # which takes an address of this machine
        return True
    return False


Around = Callable[[Callable[..., Any]], Callable[..., Any]]


def _telling(tell: Callable[..., object]) -> Around:
    """Makes a decorator of a function that is called with the same arguments before."""

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            tell(*args, **kwargs)
            return original(*args, **kwargs)

        return call

    return around


def patch_h5py(effects: Effects) -> None:
    """Have h5py's files told of, which are opened in C: Keras writes weights by them."""
    import h5py  # type: ignore[import-untyped]  # Keras brings it

    def opened(_: Any, name: Any, mode: str = "r", *__: Any, **___: Any) -> None:
        if mode != "r":
            effects.writes(name)

    h5py.File.__init__ = _telling(opened)(h5py.File.__init__)


def patch_shared_memory(effects: Effects) -> None:
    """Have segments of shared memory told of that somebody else has made."""
    import _posixshmem  # type: ignore[import-not-found]  # of CPython, where there is POSIX's

    _posixshmem.shm_open = _telling(lambda path, *_, **__: effects.attaches(path))(_posixshmem.shm_open)


def patch_writers(effects: Effects, patches: Patches) -> None:
    """Have TensorFlow's own writers told of: checkpoints, summaries, files of ``tf.io.gfile``."""
    from tensorflow.python.checkpoint import functional_saver
    from tensorflow.python.lib.io import _pywrap_file_io, file_io
    from tensorflow.python.ops import gen_summary_ops

    def told(at: int, name: str) -> Around:
        def tell(*args: Any, **kwargs: Any) -> None:
            path: Any = kwargs.get(name, args[at] if len(args) > at else None)
            effects.writes(path.numpy() if hasattr(path, "numpy") else path)

        return _telling(tell)

    patches.put(functional_saver.MultiDeviceSaver, "save", told(1, "file_prefix"))
    patches.put(gen_summary_ops, "create_summary_file_writer", told(1, "logdir"))
    patches.put(file_io.FileIO, "_prewrite_check", _telling(lambda file: effects.writes(file.name)))
    patches.put(_pywrap_file_io, "RecursivelyCreateDir", told(0, "path"))


class AfterImport(MetaPathFinder):
    """A finder that finds nothing itself; it wraps the loaders of the modules that are waited for.

    Args:
        actions: module's full name -> what is called once that module's own code has run.
        begins: called with its name before that code runs.
    """

    def __init__(self, actions: dict[str, Callable[[], None]], begins: Callable[[str], None] = lambda _: None) -> None:
        self._actions = dict(actions)
        self._begins = begins

    def install(self) -> None:
        """Stand before the other finders; what is loaded already has its action at once."""
        sys.meta_path.insert(0, self)
        for name in [name for name in self._actions if name in sys.modules]:
            self._actions.pop(name)()

    def uninstall(self) -> None:
        """Wait for nothing any more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module's spec as the other finders have it, its loader wrapped; ``None`` for all other modules."""
        if name not in self._actions:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if finder is not self and find is not None else None
            if spec is not None:
                self._wrap(name, spec)
                return spec
        return None

    def _wrap(self, name: str, spec: ModuleSpec) -> None:
        loader = spec.loader
        if loader is None or not hasattr(loader, "exec_module"):
            return
        original = loader.exec_module

        @functools.wraps(original)
        def exec_module(module: ModuleType) -> None:
            self._begins(name)
            original(module)
            action = self._actions.pop(name, None)
            if action is not None:
                action()

        loader.exec_module = exec_module  # type: ignore[method-assign]
