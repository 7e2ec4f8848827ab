"""Door for a checkout: ``python cli.py diagnose`` is ``xttsbench diagnose``. Not installed as a module."""

from __future__ import annotations

from xttsbench.cli import main

if __name__ == "__main__":
    main()
