"""Why a fix is not written into the source."""

from __future__ import annotations


class NoEditError(Exception):
    """No edit can be made safely; the message is a sentence for the user, who can write it by hand."""


class NothingToDoError(NoEditError):
    """The source has the fix already; there is nothing to write by hand."""


class NoCallError(NoEditError):
    """The op was made by a call that has no such argument (``unbatch`` makes a map); there is nothing to write."""
