"""What the parallel map of an opened generator calls: the elements of an item, from its number."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from xttsbench.pipeline.python.items import Items
from xttsbench.pipeline.python.opened import Opened, Shared, made_of

_MOST_WAITING: Final = 4096
"""Items whose elements wait to be fetched; more are left of epochs that were given up."""


class ElementOfItem:
    """Makes the element of an item that comes as tensors.

    Attributes:
        items: what items are, with the function that makes an element of one.
        structure: of the element, with the dtype of each leaf.
        reads: what it reads and other code changes, in words; ``None`` where there is nothing.
        of: TensorFlow's table of the generator's iterators, by which the generator is known.
    """

    def __init__(
        self, items: Items, convert: Callable[[Any], Any], user: Any, structure: Any, reads: str | None, of: Any
    ) -> None:
        self.items, self.structure, self.reads, self.of = items, structure, reads, of
        self._convert = convert
        self.__wrapped__ = user
        """For those who look for the user's function behind a token."""

    def __call__(self, *parts: Any) -> Any:
        """The element as flat arrays."""
        try:
            return self._convert(self.items.function(*parts))
        except StopIteration as error:
            raise RuntimeError("generator raised StopIteration") from error


class Body:
    """Makes the elements of items, in this process unless ``made`` is exchanged."""

    def __init__(self, opened: Opened, convert: Callable[[Any], Any], user: Any) -> None:
        """Take the generator's table of items, the check and conversion of an element, and the user's function."""
        self.opened = opened
        self.convert = convert
        self.made: Callable[[Shared, tuple[Any, ...]], list[Any]] = self._made
        self.__wrapped__ = user
        """For those who look for the user's function behind a token."""
        self.in_python: str | None = None
        """Why its items are no tensors, where they were to be, as a phrase after "it"."""
        self.of: Any = None
        """TensorFlow's table of the generator's iterators, by which the generator is known."""

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
