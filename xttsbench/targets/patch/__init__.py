"""A fix written into the user's own source: text in, text out, with nothing run and TensorFlow not imported.

An edit replaces as little as it can, so that comments and layout of everything else stay byte for byte. Where no edit
can be made safely, the patch says what to write by hand, and where.
"""

from xttsbench.targets.patch.propose import propose

__all__ = ["propose"]
