"""``python -m xttsbench``: the same command as the console script."""

from __future__ import annotations

from xttsbench.cli import main

if __name__ == "__main__":
    main()
