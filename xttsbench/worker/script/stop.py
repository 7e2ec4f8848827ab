"""What is raised in a script to stop it."""

from __future__ import annotations


class StoppedByUs(BaseException):
    """Enough steps were measured. No ``Exception``: a script that goes on after errors would go on after this one."""
