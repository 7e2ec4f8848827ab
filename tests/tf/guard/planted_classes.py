"""Loaders as classes, with configurations, switches and methods that set things up, as people write them.

As in :mod:`planted`, each maker returns a new function with state of its own, and some do nothing wrong at all: what a
method has set before the pipeline is ready, and what a switch turns off, is no fault.
"""

from __future__ import annotations

import dataclasses
import random

import numpy as np


@dataclasses.dataclass
class Config:
    """Settings of a loader."""

    shifted: bool = False
    counted: bool = False
    jitter: float = 0.0
    mode: str = "plain"
    turned: bool = False
    advanced: bool = False


class Entries:
    """Reads its list of entries before it is used."""

    def __init__(self):
        self.entries = []

    def read_entries(self):
        for number in range(1000):
            self.entries.append(number * 7)

    def load(self, x):
        return np.int64(self.entries[int(x) % 1000])


def read_before():
    rows = Entries()
    rows.read_entries()
    return rows.load


class Opened(Entries):
    """The same through a method that makes all ready."""

    def made_ready(self):  # a name of its own among the tests, which are all loaded: names tell what has run
        self.prepare()
        return self.load

    def prepare(self):
        self.read_entries()
        self.scale = 3

    def load(self, x):
        return np.int64(self.entries[int(x) % 1000] * self.scale)


def made_ready():
    return Opened().made_ready()


class Switched:
    """A loader whose augmentations can be turned on."""

    def __init__(self, config=None):
        self.config = config or Config()
        self.calls = 0

    def _shift(self, x):
        if not self.config.shifted:
            return x
        return x * 1000 + random.randrange(1000)

    def load(self, x):
        x = self._shift(x)
        if self.config.jitter > 0 and random.random() < self.config.jitter:
            x = x + 1
        if self.config.counted:
            self.calls += 1
            x = x + 1000 * self.calls
        return np.int64(x if self.config.mode == "plain" else x + random.randrange(9))


def switched_off():
    return Switched().load


def shift_on():
    return Switched(Config(shifted=True)).load


def jitter_on():
    return Switched(Config(jitter=0.5)).load


def mode_on():
    return Switched(Config(mode="noisy")).load


def count_on():
    return Switched(Config(counted=True)).load


class TurnsItself(Switched):
    """The switch is turned by the function that asks for it."""

    def load(self, x):
        if self.config.turned:
            x = x + 1000
        self.config.turned = int(x) % 5 == 0
        return np.int64(x)


def turned_by_itself():
    return TurnsItself().load


class Asked(Switched):
    """The switch is a property, which counts how often it is asked for."""

    @property
    def on(self):
        self.calls += 1
        return self.calls > 30

    def load(self, x):
        return np.int64(x + 1000) if self.on else np.int64(x)


def switch_that_counts():
    return Asked().load


class InList(Switched):
    """The switch lies in a list, which the function fills."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def load(self, x):
        if not self.seen:
            self.seen.append(x)
            return np.int64(x)
        return np.int64(x + 1000)


def switch_in_a_list():
    return InList().load


class Curriculum:
    """A callback of the training turns its switch."""

    def __init__(self):
        self.config = Config()
        self.hard = False

    def on_epoch_end(self, epoch):
        self.hard = epoch > 0

    def load(self, x):
        return np.int64(x + 1000) if self.hard else np.int64(x)


def turned_by_a_callback():
    return Curriculum().load


class OfConfig(Curriculum):
    """A method that nobody is seen to call sets what the configuration says."""

    def advance(self):
        self.config.advanced = True

    def load(self, x):
        return np.int64(x + 1000) if self.config.advanced else np.int64(x)


def turned_in_its_configuration():
    return OfConfig().load


class Turned:
    """A function of the training turns the switch of whatever it is given."""

    def __init__(self):
        self.difficult = False

    def load(self, x):
        return np.int64(x + 1000) if self.difficult else np.int64(x)


def train(loader, epochs):
    for epoch in range(epochs):
        loader.difficult = epoch > 0


def turned_by_the_training():
    return Turned().load


class Reshuffled(Entries):
    """The list of entries is read again between epochs."""

    def between(self):
        self.read_again()

    def read_again(self):
        self.entries = self.entries[::-1]


def read_again_between_epochs():
    rows = Reshuffled()
    rows.read_entries()
    rows.read_again()
    return rows.load


class Shared:
    """A class attribute that a class method sets."""

    epoch = 0

    @classmethod
    def set_epoch(cls, epoch):
        cls.epoch = epoch

    def load(self, x):
        return np.int64(x + self.epoch)


def class_attribute():
    return Shared().load


NOISY = False


def set_noisy():
    global NOISY  # noqa: PLW0603 - the fault
    NOISY = True


def global_switch():
    return lambda x: np.int64(x * 1000 + random.randrange(1000)) if NOISY else np.int64(x)


HARMLESS = (read_before, made_ready, switched_off)
STATE = (count_on, turned_by_itself, switch_that_counts, switch_in_a_list)
EPOCH = (
    turned_by_a_callback, turned_in_its_configuration, turned_by_the_training, read_again_between_epochs,
    class_attribute, global_switch,
)  # fmt: skip
RANDOM = (shift_on, jitter_on, mode_on)
