"""Effects of a script's process, as it hears of them: loaded modules, written files, contacted machines.

Python tells its audit hooks of every file that it opens and every connection that it makes. TensorFlow writes in C++,
which tells nobody, so the functions by which Python asks it to are wrapped.

What a script writes can be kept from the disk, too. The process gets a mount namespace of its own, in which each file
system is covered by one of Linux's overlays; what is written, by Python, C++ or a program that the script starts, goes
to memory, is read back from there, and is gone with the process. That takes a kernel that lets a user make namespaces,
which containers often forbid. Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import ipaddress
import os
import site
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from xttsbench.worker.script.patches import Patches

MOST: Final = 20
"""Most entries of each kind that are kept."""
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES: Final = ("os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod")
_MADE: Final = ("tempfile.mkdtemp", "tempfile.mkstemp")
_NEVER: Final = ("/dev/", "/proc/", "/sys/")


class Effects:
    """Files written and machines contacted, from when it is made until :meth:`end`."""

    def __init__(self) -> None:
        self.wrote: dict[str, None] = {}
        self.contacted: dict[str, None] = {}
        self._temporary: set[str] = set()
        self._active = True
        sys.addaudithook(self._heard)

    def end(self) -> None:
        """Hear no more; Python keeps the hook itself."""
        self._active = False

    def writes(self, path: Any) -> None:
        """Note that a path is written, unless it is of no matter: temporary, a device, or Python's own cache."""
        try:
            full = os.path.abspath(os.fsdecode(path))
        except (TypeError, ValueError):  # a descriptor, or a tensor
            return
        if full.startswith(_NEVER) or "__pycache__" in full or len(self.wrote) >= MOST:
            return
        if not any(_below(full, one) for one in self._temporary):
            self.wrote[full] = None

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._active:
            return
        if event == "open":
            path, mode, flags = args
            asked = set(mode) & set("wax+") if isinstance(mode, str) else mode is None and flags & _WRITES
            if asked and not os.path.isdir(path):  # which a temporary file without a name opens
                self.writes(path)
        elif event in _CHANGES or (event == "os.mkdir" and not os.path.isdir(args[0])):
            self.writes(_found(args[0], args[-1]))
        elif event in _MADE:
            self._temporary.add(os.path.abspath(os.fsdecode(args[0])))
        elif event == "socket.connect":
            self._contacts(args[1])

    def _contacts(self, address: Any) -> None:
        if not isinstance(address, tuple) or len(address) < 2 or len(self.contacted) >= MOST:
            return  # a socket of this machine
        host, port = str(address[0]), address[1]
        try:
            local = ipaddress.ip_address(host).is_loopback
        except ValueError:
            local = host in ("localhost", "")
        if not local:
            self.contacted[f"{host}:{port}"] = None


def _found(path: Any, folder: Any) -> Any:
    """A path that is named from the descriptor of a directory on, as whoever removes a tree does, in full."""
    if not isinstance(folder, int) or folder < 0:
        return path
    try:
        return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))
    except (OSError, TypeError):
        return path


def patch_h5py(effects: Effects) -> None:
    """Have h5py's files told of, which are opened in C: Keras writes weights by them."""
    import h5py  # type: ignore[import-untyped]  # Keras brings it

    original = h5py.File.__init__

    @functools.wraps(original)
    def init(file: Any, name: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
        if mode != "r":
            effects.writes(name)
        original(file, name, mode, *args, **kwargs)

    h5py.File.__init__ = init


def patch_writers(effects: Effects, patches: Patches) -> None:
    """Have TensorFlow's own writers told of: checkpoints, summaries, files of ``tf.io.gfile``."""
    from tensorflow.python.checkpoint import functional_saver
    from tensorflow.python.lib.io import _pywrap_file_io, file_io
    from tensorflow.python.ops import gen_summary_ops

    def told(at: int, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                path: Any = kwargs.get(name, args[at] if len(args) > at else None)
                effects.writes(path.numpy() if hasattr(path, "numpy") else path)
                return original(*args, **kwargs)

            return call

        return around

    def around_open(original: Callable[..., Any]) -> Callable[..., Any]:
        def check(file: Any) -> Any:
            effects.writes(file.name)
            return original(file)

        return check

    patches.put(functional_saver.MultiDeviceSaver, "save", told(1, "file_prefix"))
    patches.put(gen_summary_ops, "create_summary_file_writer", told(1, "logdir"))
    patches.put(file_io.FileIO, "_prewrite_check", around_open)
    patches.put(_pywrap_file_io, "RecursivelyCreateDir", told(0, "path"))


_NEW_MOUNTS: Final = 0x00020000
_NEW_USER: Final = 0x10000000
_BIND: Final = 0x1000
_PRIVATE: Final = 0x4000 | 0x40000  # For all mounts below, too: nothing reaches the processes outside
_SYSTEM: Final = ("proc", "sys", "dev", "run", "etc", "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "boot")
"""Directories below the root that are left as they are: devices, the kernel's own, and the system's."""
_SHARE: Final = "25%"  # Of the memory, for what is written


def copy_on_write(keep: str) -> None:
    """Keep what this process and its children write from the disk from now on, but for the files of one directory.

    Raises:
        OSError: the kernel does not let this user do so; the process should end.
    """
    uid, gid = os.getuid(), os.getgid()
    cwd, keep = os.getcwd(), os.path.realpath(keep)
    scratch = os.path.join(keep, "scratch")
    os.makedirs(scratch, exist_ok=True)
    options = ""
    try:
        _check(_libc().unshare(_NEW_MOUNTS), "a mount namespace")
    except OSError:
        # A user namespace of one thread: nobody may have started another one by now.
        _check(_libc().unshare(_NEW_MOUNTS | _NEW_USER), "a user namespace")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        options = ",userxattr"
    _mount("none", "/", None, _PRIVATE)
    covered = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in _directories()}
    kept = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (*_installed(), keep)}
    _mount("tmpfs", scratch, "tmpfs", 0, f"size={_SHARE},mode=700")
    memory = os.open(scratch, os.O_PATH | os.O_DIRECTORY)
    for number, (path, lower) in enumerate(covered.items()):
        upper, work = (f"/proc/self/fd/{memory}/{number}-{name}" for name in ("upper", "work"))
        os.mkdir(upper)
        os.mkdir(work)
        data = f"lowerdir=/proc/self/fd/{lower},upperdir={upper},workdir={work}{options}"
        _mount("overlay", path, "overlay", 0, data)
        with contextlib.suppress(OSError):  # the root of the overlay looks as the directory did
            info = os.stat(f"/proc/self/fd/{lower}")
            os.chmod(path, info.st_mode & 0o7777)
    for path, descriptor in kept.items():
        _mount(f"/proc/self/fd/{descriptor}", path, None, _BIND)
    for descriptor in (*covered.values(), *kept.values(), memory):
        os.close(descriptor)
    os.chdir(cwd)


def why_not() -> str | None:
    """Why this process could not do so, or ``None`` where it could; tried in a child, before any thread is started."""
    try:
        with tempfile.TemporaryDirectory(prefix="xttsbench-") as folder:
            reading, writing = os.pipe()
            child = os.fork()
            if not child:
                said = b""
                try:
                    copy_on_write(folder)
                except BaseException as error:
                    said = str(error).encode() or b"it failed"
                os.write(writing, said)
                os._exit(0)
            os.close(writing)
            with os.fdopen(reading, "rb") as pipe:
                text = pipe.read().decode(errors="replace")
            os.waitpid(child, 0)
            return text or None
    except OSError as error:
        return str(error)


def _directories() -> list[str]:
    """Directories to cover: those below the root, and mounted file systems, outer ones first."""
    with open("/proc/self/mountinfo", encoding="utf-8") as lines:
        mounted = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    top = [os.path.join("/", name) for name in os.listdir("/") if name not in _SYSTEM]
    system = tuple(f"/{name}" for name in _SYSTEM)
    inner = [path for path in mounted if path != "/" and not any(_below(path, name) for name in system)]
    found = {path for path in (*top, *inner) if os.path.isdir(path) and not os.path.islink(path)}
    return sorted(found, key=lambda path: (path.count("/"), path))


def _installed() -> list[str]:
    """Directories of installed packages, left uncovered. A loaded library must be the same file when named again."""
    paths = (sys.prefix, sys.base_prefix, *site.getsitepackages(), site.getusersitepackages(), *_loaded_from())
    found = {os.path.realpath(path) for path in paths if os.path.isdir(path)}
    return sorted(path for path in found if not any(path != other and _below(path, other) for other in found))


def _loaded_from() -> list[str]:
    """Directories of Python's path that libraries of this process were loaded from, wherever packages are installed."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        mapped = {line.split(maxsplit=5)[5].rstrip("\n") for line in lines if ".so" in line}
    return [path for path in sys.path if path and any(_below(one, os.path.realpath(path)) for one in mapped)]


def _below(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent}/")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    words = [None if word is None else word.encode() for word in (source, target, kind, data)]
    found = _libc().mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3])
    _check(found, f"{kind or 'a'} mount on {target}")


def _check(found: int, what: str) -> None:
    if found:
        number = ctypes.get_errno()
        raise OSError(number, f"the kernel refuses {what} ({os.strerror(number)})")


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
