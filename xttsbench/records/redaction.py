"""Secrets kept out of everything that is written or shown, and with ``--redact`` whatever tells who measured where.

A secret is known by the name of its argument (``--api-key=...``, ``--password ...``, ``HF_TOKEN=...``, a key of a
dictionary) or by its shape (keys of clouds and services, a JSON web token, a URL with a password). Numbers and booleans
are none, whatever they are called. What was found so is masked wherever the same text comes again, be it in a
traceback. Pure: who the user is and where the run lies is handed in.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from xttsbench.errors import UsageError
from xttsbench.records.base import Record, Rewriting
from xttsbench.records.variables import KNOWN

MASK: Final = "***"
_LEAST: Final = 6  # characters of a secret that is looked for in every text
_IDS: Final = ("arm", "group", "id", "name", "trial_id")
_GIVEN: Final = ("config", "kwargs", "others")  # Arguments by name
_LINES: Final = ("command", "next_command", "script")  # as a shell would take them
_PARTS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_SECRET: Final = re.compile(
    r"passw(or)?d|passphrase|secret(?!ar|i)|credential|bearer|cookie|connection_?str(ing)?$|"
    r"(api|app|access|private|auth|account|client|encrypt(ion)?|signing|storage|shared|master|license|service|ssh|hmac|"
    r"subscription|deploy)_?keys?(_id|_value)?$|(^|_)(pwd|dsn|jwt|sas|auth|authorization|session(_?(id|key))?)$|"
    r"(db|smtp|user|http|ftp|sql|redis|proxy|login|admin|root)_?pass$|token$|(auth|api|access)_?tokens$"
)
_NO_SECRET: Final = re.compile(
    r"_(file|path|dir|folder|type|len|length|count|size|name|policy|env|var|url|uri|format|field|column|prefix|ttl|py|ya?ml)$|"
    r"^(no|skip|with|without|require|disable|enable|allow|has|is|need)_|(^|_)(pad|eos|bos|unk|mask|sep|cls|oov|blank|"
    r"stop|start|end|begin|special|image|video|audio|text|prompt|next|last|first|max|min|num|per|new)_?token$"
)
_HARMLESS: Final = re.compile(
    r"([-+]?\.?\d[\d_.,]*(e[-+]?\d+)?[kmgb%]*|true|false|yes|no|on|off|none|null|auto)?", re.IGNORECASE
)
_SHAPES: Final = re.compile(
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"
    r"|\bhf_[A-Za-z0-9]{16,}|\bsk-(?=[\w-]*\d)[\w-]{16,}|\bsk_(?:live|test)_\w{10,}|\bxox[a-z]-[\w-]{10,}"
    r"|\bAIza[\w-]{30,}|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[\w-]{30,}|\bya29\.[\w-]{20,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<=://)[^/\s:@'\"]*:[^/\s@'\"]+(?=@)|(?i:(?<=\bbearer )|(?<=\bbasic ))(?=\S*\d)[\w.~+/=-]{12,}",
    re.DOTALL,
)
_WITHIN: Final = re.compile(r"([\w.-]{2,60}+)(['\"]?\]?\s*[=:]\s*['\"]?)([^\s'\",;&?<>(){}\[\]]++)(?!\()")
_NAMED: Final = re.compile(r"([-+~]*[A-Za-z_][\w.-]*)([=:])(.*)", re.DOTALL)
_OPTION: Final = re.compile(r"-{1,2}[A-Za-z][\w.-]*")
_KEY: Final = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])[A-Za-z0-9+=_-]{24,}")  # Random, behind a name that ends in "key"
_PATH: Final = re.compile(r"(?:file://|…|(?<![\w.…~/*<>)\]%-]))/(?![/\s])[^\s\"'`<>|:;,()\[\]{}=*?]+")
_FROM: Final = re.compile(r"/(?:site-packages|dist-packages|lib/python3\.\d+)/.*")
_ADDRESS: Final = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")


def secret_name(name: str) -> bool:
    """Whether an argument, a key or a variable of this name holds a secret."""
    parts = _PARTS.sub("_", name).strip("_").lower()
    return _SECRET.search(parts) is not None and _NO_SECRET.search(parts) is None


def harmless(value: Any) -> bool:
    """Whether a value is none that could be a secret: a number, a boolean, nothing."""
    return not isinstance(value, str | list | tuple | dict) or (
        isinstance(value, str) and _HARMLESS.fullmatch(value) is not None
    )


class Hidden(Record):
    """Digest of the values that a plan leaves out, so that the same ones are known again when the run goes on."""

    names: tuple[str, ...]  # Arguments whose values are masked
    salt: str  # Random, of this run
    digest: str  # Of all the values together

    @classmethod
    def of(cls, found: Sequence[tuple[str, str]], salt: str) -> Hidden | None:
        """Names and digest (scrypt, so that guessing is slow) of values; ``None`` where there is none."""
        if not found:
            return None
        values = json.dumps([value for _, value in found]).encode()
        digest = hashlib.scrypt(values, salt=salt.encode(), n=2**14, r=8, p=1, dklen=16).hex()
        return cls(names=tuple(dict.fromkeys(name or "an argument" for name, _ in found)), salt=salt, digest=digest)


class Redaction(Rewriting):
    """Makes values again without the secrets in them.

    Args:
        known: texts that are masked wherever they are.
        redact: leave out values of arguments, absolute paths and addresses as well.
        shown: keyword arguments whose values stay all the same; ``None`` for all.
        places: folders, the innermost first -> what stands in their place, with the slash behind it.
        names: of the user and the machine.

    Attributes:
        hidden: arguments that were masked, with their values, in the order in which they came.
        missing: arguments whose value is the mask itself.
    """

    def __init__(
        self,
        known: Collection[str] = (),
        *,
        redact: bool = False,
        shown: Collection[str] | None = (),
        places: Sequence[tuple[str, str]] = (),
        names: Collection[str] = (),
    ) -> None:
        self.hidden: list[tuple[str, str]] = []
        self.missing: list[str] = []
        ways = ((one, repr(one)[1:-1], one.replace("'", "\\'"), quote(one)) for one in known)
        self._known = sorted({way for every in ways for way in every}, key=len, reverse=True)
        self._redact, self._shown = redact, shown
        self._places = [  # the first slash may be that of "a/" in a diff
            (re.compile(rf"(?<![\w.-]{{2}}){re.escape(place)}(/|(?![\w.-]))"), stand_in)
            for place, stand_in in places
            if place != "/"
        ]
        self._names = re.compile(r"\b(?:" + "|".join(map(re.escape, names)) + r")\b") if redact and names else None

    def secrets(self) -> list[str]:
        """Hidden values so far that are long and odd enough to be looked for in any text."""
        return [
            value
            for name, value in self.hidden
            if len(value) >= _LEAST and not harmless(value) and (secret_name(name) or not value.isalpha())
        ]

    def require_values(self) -> None:
        """Refuse arguments that were copied from a file.

        Raises:
            UsageError: the value of one is the mask itself.
        """
        if self.missing:
            raise UsageError(
                f"{', '.join(dict.fromkeys(self.missing))}: received {MASK!r}, which stands in files for a "
                "value that is kept nowhere; give the value itself."
            )

    def without_known(self, text: str) -> str:
        """The text without what is known, as the screen shows it."""
        for value in self._known:
            text = text.replace(value, MASK)
        return text

    def text(self, text: str, *, least: int = 8) -> str:
        """A text without secrets, and without paths and names where these are left out.

        What stands within the text behind a name that says so is secret from ``least`` characters on.
        """
        text = self.without_known(super().text(text))
        text = _SHAPES.sub(lambda found: self._hide("", found[0]), text)
        text = _WITHIN.sub(lambda found: self._within(found, least), text)
        if self._redact:
            for place, stand_in in self._places:
                text = place.sub(partial(_stands_for, stand_in), text)
            text = _ADDRESS.sub(MASK, _PATH.sub(_short, text))
            text = self._names.sub(MASK, text) if self._names else text
        return text

    def kept(self, value: Any, name: str = "") -> Any:
        """A value of JSON or a record as it may be kept; ``name`` is that of the field or key that holds it."""
        if isinstance(value, str):
            if value == MASK:
                return self._hide(name, value)
            if name in _LINES:
                return self._line(value)
            if name in _IDS and value.isidentifier():
                return value
        elif name == "variables" and isinstance(value, Mapping):
            value = {one: held for one, held in value.items() if one in KNOWN}
        elif self._redact and value and name == "arguments":
            return type(value)(self.words(value, every=True))
        elif isinstance(value, Mapping) and name in _GIVEN:
            return self._given(name, value, every=self._redact and name != "config" and self._shown is not None)
        return super().kept(value, name)

    def items(self, values: Collection[Any]) -> Iterator[Any]:
        """The items of a list; texts may be the words of a command."""
        return self.words([*values]) if all(isinstance(one, str) for one in values) else super().items(values)

    def words(self, words: Sequence[str], *, every: bool = False) -> Iterator[str]:
        """Arguments without the secrets in them, or without any value; names stay: ``--token=***``, ``--token ***``."""
        option = ""
        for word in words:
            if _OPTION.fullmatch(word):
                option = word
                yield word
                continue
            named = _NAMED.fullmatch(word)
            name, start, value = (named[1], named[1] + named[2], named[3]) if named else ("", "", word)
            if not (named and (not option or option == "--set" or secret_name(name))):
                name, start, value = option, "", word
            key = name.lower().endswith("key") and _KEY.fullmatch(value)
            secret = not harmless(value) and (key or secret_name(name))
            if secret or every or value == MASK or (option == "--set" and self._redact):
                yield start + self._hide(name, value)
            else:
                yield self.text(word, least=1)
            option = ""

    def _given(self, name: str, value: Any, *, every: bool, secret: bool = False) -> Any:
        """Arguments by name, at any depth: what is secret is masked, or ``every`` value but those that are shown."""
        if isinstance(value, Mapping):
            shown = self._shown or ()
            return {
                self.key(key): self._given(
                    str(key), one, every=every and key not in shown, secret=secret or secret_name(str(key))
                )
                for key, one in value.items()
            }
        if isinstance(value, list | tuple) and (secret or every or not all(isinstance(one, str) for one in value)):
            return type(value)(self._given(name, one, every=every, secret=secret) for one in value)
        if every or (secret and not harmless(value)):
            return self._hide(name, value if isinstance(value, str) else json.dumps(value, default=str))
        return self.kept(value, name)

    def _line(self, line: str) -> str:
        try:
            words = shlex.split(line)
        except ValueError:
            return self.text(line)
        end = words.index("--") + 1 if "--" in words else len(words)
        kept = [*self.words(words[:end]), *self.words(words[end:], every=self._redact)]
        return line if kept == words else shlex.join(kept)

    def _within(self, found: re.Match[str], least: int) -> str:
        name, mark, value = found.groups()
        odd = len(value) >= least and not harmless(value) and (least == 1 or any(map(str.isdigit, value)))
        return f"{name}{mark}{self._hide(name, value)}" if odd and secret_name(name) else found[0]

    def _hide(self, name: str, value: str) -> str:
        if MASK not in value:
            self.hidden.append((name, value))
        elif value == MASK:
            self.missing.append(name or "an argument")
        return MASK


def _stands_for(stand_in: str, found: re.Match[str]) -> str:
    return stand_in if found[1] else stand_in.rstrip("/") or "."


def _short(found: re.Match[str]) -> str:
    """The end of a path: its name, or what is below the folder where packages lie."""
    path = found[0]
    inside = _FROM.search(path)
    return f"…{inside[0]}" if inside else f"…/{PurePosixPath(path).name}"
