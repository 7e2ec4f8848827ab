"""File systems covered so that what a process writes goes to memory: read back from there, and gone with the process.

The process gets a mount namespace of its own, in which each directory below the root and each mounted file system is
covered by one of Linux's overlays. That holds for what is written by Python, C++ or a program that the script starts.
It takes a kernel that lets a user make namespaces, which containers often forbid. What cannot be covered is named: file
systems that Linux refuses to put an overlay on, devices, and the root directory itself. Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from xttsbench.probes.procfs import obtainable_bytes

_NEW_MOUNTS: Final = 0x00020000
_NEW_USER: Final = 0x10000000
_BIND: Final = 0x1000
_READ_ONLY: Final = 0x1 | 0x20 | _BIND  # A mount that is there, changed
_LOCKED: Final = 0xE  # nosuid, nodev, noexec: whoever changes a mount has to name those that it has
_PRIVATE: Final = 0x4000 | 0x40000  # For all mounts below, too: nothing reaches the processes outside
_SYSTEM: Final = ("/proc", "/sys", "/dev")
"""Left as they are: the kernel's own, and devices; shared memory is covered."""
_SHARED_MEMORY: Final = "/dev/shm"
_KEEP: Final = "Say --keep-writes if it may write to the disk."


@dataclass(frozen=True)
class Overlays:
    """Directories that this process covers, or could cover where nothing was done.

    Attributes:
        covered: directories; the descriptor of what lies below each, -1 where nothing was done.
        refused: directories and files that the kernel does not let be covered; why.
        memory: descriptor of the memory that takes what is written, -1 where nothing was done.
        room_bytes: how much of it there is.
    """

    covered: Mapping[str, int]
    refused: Mapping[str, str] = field(default_factory=dict)
    memory: int = -1
    room_bytes: int = 0

    def covers(self, path: str) -> bool:
        """Tell whether writes to a path go to memory."""
        real = os.path.realpath(path)
        inner = max((one for one in (*self.covered, *self.refused) if below(real, one)), key=len, default=None)
        return inner in self.covered

    def reach(self, path: str) -> bool:
        """Have a named pipe lead to who holds its other end outside, where the script has not made it itself.

        Through an overlay it would be another one.
        """
        real = os.path.realpath(path)
        outer = max((one for one in self.covered if below(real, one)), key=len, default="/")
        descriptor = self.covered.get(outer, -1)
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                _mount(f"/proc/self/fd/{descriptor}/{os.path.relpath(real, outer)}", real, None, _BIND)
                return True
        return descriptor < 0

    def written(self) -> Iterator[str]:
        """The files that were written or removed, by whichever process; none once the script closed the descriptor."""
        for number, path in enumerate(self.covered):
            upper = f"/proc/self/fd/{self.memory}/{number}-upper"
            for folder, _, names in os.walk(upper):
                yield from (os.path.normpath(os.path.join(path, os.path.relpath(folder, upper), one)) for one in names)

    def why_raised(self, error: BaseException) -> str | None:
        """Why a script raised for want of memory for its writes, with the remedy; ``None`` where that is not why."""
        number = getattr(error, "errno", None) if self.memory >= 0 else 0
        if number == errno.EOVERFLOW:
            return f"a file of another user's cannot be kept in memory ({error}). {_KEEP}"
        with contextlib.suppress(OSError):
            left = os.fstatvfs(self.memory)
            if number == errno.ENOSPC or "No space left" in str(error) or not left.f_bavail:
                room = f"{self.room_bytes / 2**30:.2g} GiB of memory"
                return f"what the script wrote did not fit into the {room} where it was kept. {_KEEP}"
        return None


def cover(keep: str, *, share: int = 4, strict: bool = False) -> Overlays:
    """Keep what this process and its children write in memory from now on, but for the files of one directory.

    Args:
        keep: the directory that stays as it is.
        share: of the available memory, the part that writes may fill; more fails as on a full disk.
        strict: what is not covered cannot be written to at all.

    Raises:
        OSError: the kernel does not let this user do so; the process should end.
    """
    cwd, keep = os.getcwd(), os.path.realpath(keep)
    os.makedirs(keep, exist_ok=True)
    options = _own_mounts()
    places = {path: _held(path) for path in _places(others=bool(options))}
    files = {path: _held(path) for path in (*_libraries(), *_sockets())}
    kept = _held(keep)
    room_bytes = obtainable_bytes() // share // 4096 * 4096
    scratch = tempfile.mkdtemp(prefix="scratch-", dir=keep)
    _mount("tmpfs", scratch, "tmpfs", 0, f"size={room_bytes},mode=700")
    memory = _held(scratch)
    covered: dict[str, int] = {}
    refused: dict[str, str] = {}
    waiting = sorted(places, key=_depth)
    while waiting:
        path = waiting.pop(0)
        lower = places[path]
        try:
            _overlay(path, lower, f"/proc/self/fd/{memory}/{len(covered)}", options)
            covered[path] = lower
        except OSError as error:
            refused[path] = str(error)
            if any(below(path, outer) for outer in covered):  # which would hide it
                _mount(f"/proc/self/fd/{lower}", path, None, _BIND)
                _freeze(path, strict)
            elif any(below(one, path) for one in waiting):  # a user's own overlay spans no mount; its parts may do
                inner = [one for one in _directories(path) if one not in places]
                places |= {one: _held(one) for one in inner}
                waiting = sorted([*waiting, *inner], key=_depth)
            os.close(lower)
    if not covered:
        raise OSError(next(iter(refused.values()), "there is nothing that it could cover"))
    for path, descriptor in files.items():
        with contextlib.suppress(OSError):  # gone since, or a name that another mount hides
            _mount(f"/proc/self/fd/{descriptor}", path, None, _BIND)
            _freeze(path, path.endswith(".so") or ".so." in path)
        os.close(descriptor)
    _libc().umount2(f"/proc/self/fd/{memory}".encode(), 2)  # it stays as long as it is used, and nobody walks into it
    _mount(f"/proc/self/fd/{kept}", keep, None, _BIND)
    os.close(kept)
    os.rmdir(scratch)
    _freeze("/", strict)  # only now: what is bound from there would be read only, too
    os.chdir(cwd)
    if options:
        _as_before()
    return Overlays(covered, refused, memory, room_bytes)


def tried() -> Overlays | str:
    """Try in a child what this process could cover, before any thread is started; a sentence says why nothing."""
    try:
        with tempfile.TemporaryDirectory(prefix="xttsbench-") as folder:
            reading, writing = os.pipe()
            child = os.fork()
            if not child:
                said: object = "it failed"
                try:
                    found = cover(folder)
                    said = [dict.fromkeys(found.covered, -1), dict(found.refused)]
                except BaseException as error:
                    said = str(error) or said
                with os.fdopen(writing, "w") as pipe:
                    json.dump(said, pipe)
                os._exit(0)
            os.close(writing)
            with os.fdopen(reading) as answer:
                text = answer.read()
            os.waitpid(child, 0)
            told = json.loads(text)
            return told if isinstance(told, str) else Overlays(*told)
    except (OSError, ValueError) as error:
        return str(error)


def below(path: str, parent: str) -> bool:
    """Whether a path is another one or lies below it."""
    return path == parent or path.startswith(f"{parent.rstrip('/')}/")


def _own_mounts() -> str:
    """Leave the mounts of all others; the option that overlays need then."""
    uid, gid = os.getuid(), os.getgid()
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
    return options


def _overlay(path: str, lower: int, layer: str, options: str) -> None:
    """Cover a directory, whose descriptor is given, by a layer in memory.

    Raises:
        OSError: the kernel refuses it, or there is nothing to be kept: a file, or what can only be read.
    """
    own = f"/proc/self/fd/{lower}"
    if not os.path.isdir(own) or os.statvfs(own).f_flag & os.ST_RDONLY:
        raise OSError(f"no overlay can lie on {path}")
    for name in ("upper", "work"):
        os.makedirs(f"{layer}-{name}", exist_ok=True)
    _mount("overlay", path, "overlay", 0, f"lowerdir={own},upperdir={layer}-upper,workdir={layer}-work{options}")
    with contextlib.suppress(OSError):  # the root of the overlay looks as the directory did
        info = os.stat(own)
        writable = os.access(own, os.W_OK)
        with contextlib.suppress(OSError):
            os.chown(path, info.st_uid, info.st_gid)
        os.chmod(path, info.st_mode & (0o7777 if writable else 0o7555))  # its owner is this user, else


def _freeze(path: str, wanted: bool) -> None:
    """Let a mount be read only."""
    if wanted:
        has = os.statvfs(path).f_flag
        _mount("none", path, None, _READ_ONLY | (has & _LOCKED))


def _places(*, others: bool) -> set[str]:
    """Directories and mounts that are to be covered.

    Where directories of ``others`` cannot be changed in an overlay, those on the way to the working directory, and for
    temporary files, have one of their own.
    """
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        mounted = [_unescaped(line.split()[4]) for line in lines]
    found = {*_directories("/"), *mounted} - {"/"}
    if others:
        near = ("/var/tmp", tempfile.gettempdir(), *(str(one) for one in (Path.cwd(), *Path.cwd().parents)))
        found |= {one for one in near if os.access(one, os.W_OK) and os.stat(one).st_uid != os.getuid()}
    wanted = {one for one in found if not any(below(one, name) for name in _SYSTEM)}
    return {*filter(os.path.exists, wanted | ({_SHARED_MEMORY} & {*mounted}))}


def _directories(parent: str) -> list[str]:
    with contextlib.suppress(OSError):
        return [one.path for one in os.scandir(parent) if one.is_dir(follow_symlinks=False)]
    return []


def _depth(path: str) -> tuple[int, str]:
    return path.count("/"), path


def _unescaped(name: str) -> str:
    for number, sign in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        name = name.replace(f"\\{number}", sign)
    return name


def _libraries() -> list[str]:
    """Libraries that are loaded: one must be the same file where it is named again, which it is not in an overlay."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        named = {line.split(maxsplit=5)[5].rstrip("\n") for line in lines if ".so" in line}
    return sorted(one for one in named if os.path.isfile(one))


def _sockets() -> Iterable[str]:
    """UNIX sockets that somebody listens at: through an overlay nobody would answer."""
    with contextlib.suppress(OSError), open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as lines:
        for name in {line.split(maxsplit=7)[7].rstrip("\n") for line in lines if " /" in line}:
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.stat(name).st_mode):
                    yield name


def _held(path: str) -> int:
    return os.open(path, os.O_PATH)


def _as_before() -> None:
    """Give up what a namespace of its own lets a user do to the files in it, but for mounts."""
    header, mounts = (ctypes.c_uint32 * 2)(0x20080522, 0), 1 << 21  # CAP_SYS_ADMIN
    _check(_libc().capset(header, (ctypes.c_uint32 * 6)(mounts, mounts)), "to give up capabilities")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, data)]
    found = _libc().mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3])
    _check(found, f"{kind or 'a'} mount on {target}")


def _check(found: int, what: str) -> None:
    if found:
        number = ctypes.get_errno()
        raise OSError(number, f"the kernel refuses {what} ({os.strerror(number)})")
