"""A script's writes kept from the disk: every directory it sees is an overlay whose changes lie in memory.

The process gets a mount namespace of its own, in which each file system is covered by one of Linux's overlays; what is
written, by Python, C++ or a program that the script starts, goes to memory, is read back from there, and is gone with
the process. That takes a kernel that lets a user make namespaces, which containers often forbid.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import site
import sys
import tempfile
from typing import Final

_NEW_MOUNTS: Final = 0x00020000
_NEW_USER: Final = 0x10000000
_BIND: Final = 0x1000
_PRIVATE: Final = 0x4000 | 0x40000
"""For all mounts below, too: nothing reaches the processes outside."""
_SYSTEM: Final = ("proc", "sys", "dev", "run", "etc", "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "boot")
"""Directories below the root that are left as they are: devices, the kernel's own, and the system's."""
_SHARE: Final = "25%"
"""Of the memory, for what is written."""


def copy_on_write(keep: str) -> None:
    """Keep what this process and its children write from the disk, from now on.

    Args:
        keep: a directory whose files are written all the same.

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
    """What is covered: directories below the root, and mounted file systems, outer ones first."""
    with open("/proc/self/mountinfo", encoding="utf-8") as lines:
        mounted = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    top = [os.path.join("/", name) for name in os.listdir("/") if name not in _SYSTEM]
    system = tuple(f"/{name}" for name in _SYSTEM)
    inner = [path for path in mounted if path != "/" and not any(_below(path, name) for name in system)]
    found = {path for path in (*top, *inner) if os.path.isdir(path) and not os.path.islink(path)}
    return sorted(found, key=lambda path: (path.count("/"), path))


def _installed() -> list[str]:
    """What is installed stays as it is: a library that is loaded must be the same file where it is named again."""
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
