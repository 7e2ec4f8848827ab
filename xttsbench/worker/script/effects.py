"""What a script does to others while it runs: files that it writes, machines that it talks to. Imports no TensorFlow.

Python tells its audit hooks of every file that it opens and every connection that it makes. TensorFlow writes in C++,
which tells nobody, so the functions by which Python asks it to are wrapped.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from xttsbench.worker.script.patches import Patches

MOST: Final = 20
"""Of each that are kept."""
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
        self._pid = os.getpid()
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
        if not any(full == one or full.startswith(f"{one}{os.sep}") for one in self._temporary):
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
