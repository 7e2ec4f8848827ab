"""Names of methods that change what they are called on, for whoever reads Python code; free of TensorFlow."""

from typing import Final

MUTATORS: Final = frozenset({
    "append", "appendleft", "extend", "extendleft", "insert", "update", "setdefault", "pop", "popleft", "popitem",
    "add", "discard", "remove", "clear", "sort", "reverse", "rotate", "fill", "put", "put_nowait", "write",
    "writelines", "seek", "truncate", "send", "throw", "__next__", "__setitem__", "__delitem__", "__setattr__",
    "assign", "assign_add", "assign_sub", "intersection_update", "difference_update", "symmetric_difference_update",
    "subtract", "move_to_end", "itemset", "resize", "partition", "increment",
})  # fmt: skip
