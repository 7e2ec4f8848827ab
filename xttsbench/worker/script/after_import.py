"""Calls a function once a module has been loaded, whoever loads it and whenever: nothing is imported for its sake.

A script may set environment variables, devices and threads before its own import of TensorFlow; so we wait for that.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class AfterImport(MetaPathFinder):
    """A finder that finds nothing itself; it wraps the loaders of the modules that are waited for.

    Args:
        actions: module's full name -> what is called once that module's own code has run.
    """

    def __init__(self, actions: dict[str, Callable[[], None]]) -> None:
        self._actions = dict(actions)

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
            original(module)
            action = self._actions.pop(name, None)
            if action is not None:
                action()

        loader.exec_module = exec_module  # type: ignore[method-assign]
