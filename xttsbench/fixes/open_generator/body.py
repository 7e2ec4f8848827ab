"""What the parallel map of an opened generator calls: the elements of an item, from its number."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from xttsbench.pipeline.generators.opened import Opened, Shared, made_of

_MOST_WAITING: Final = 4096
"""Items whose elements wait to be fetched; more are left of epochs that were given up."""


class Body:
    """Makes the elements of items, in this process unless ``made`` is exchanged."""

    def __init__(self, opened: Opened, convert: Callable[[Any], Any], user: Any) -> None:
        """Take the generator's table of items, the check and conversion of an element, and the user's function."""
        self.opened = opened
        self.convert = convert
        self.made: Callable[[Shared, tuple[Any, ...]], list[Any]] = self._made
        self.__wrapped__ = user
        """For those who look for the user's function behind a token."""

    def elements(self, number: Any) -> list[Any]:
        """All elements of an item, converted; what came from a generator that was not read is an element itself."""
        shared, item = self.opened.taken(int(number))
        return [self.convert(item)] if shared is None else self.made(shared, item)

    def _made(self, shared: Shared, item: tuple[Any, ...]) -> list[Any]:
        return made_of(shared.function, (*shared.values, *item), self.convert)


class OneElement(Body):
    """For bodies that give one element an item."""

    def __call__(self, number: Any) -> Any:
        """The element as flat arrays or tensors."""
        return self.elements(number)[0]


class AllElements(Body):
    """For bodies that give several: the elements wait here until they are fetched one by one."""

    def __init__(self, opened: Opened, convert: Callable[[Any], Any], user: Any) -> None:
        super().__init__(opened, convert, user)
        self._lock = threading.Lock()
        self._waiting: dict[int, list[Any]] = {}

    def __call__(self, number: Any) -> Any:
        """How many elements an item has."""
        made = self.elements(number)
        with self._lock:
            if made:
                self._waiting[int(number)] = made[::-1]
            if len(self._waiting) > _MOST_WAITING:
                del self._waiting[min(self._waiting)]
        return np.int64(len(made))

    def fetched(self, number: Any) -> Any:
        """The next element of an item."""
        with self._lock:
            waiting = self._waiting[int(number)]
            element = waiting.pop()
            if not waiting:
                del self._waiting[int(number)]
        return element
