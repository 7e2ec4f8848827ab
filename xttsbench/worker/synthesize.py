"""``python -m xttsbench.worker.synthesize FD``: speaks a text with a checkpoint, as told over the socket FD."""

from __future__ import annotations

import difflib
import socket
import time
from pathlib import Path

from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.records.training import Synthesised, SynthesisJob
from xttsbench.training.checkpoints import find_checkpoint
from xttsbench.worker.channel import Channel, answer, quiet_unless_it_fails
from xttsbench.xtts.clips import as_reference
from xttsbench.xtts.data.metadata import VOCABULARY, encode, left_out
from xttsbench.xtts.features import FeatureSettings, Floats, griffin_lim, log_mel
from xttsbench.xtts.wav import read_sound, resample


def serve(connection: socket.socket) -> int:
    """Do what the first line says, and answer ``{"done": ...}`` or ``{"error": sentence, "exit_code": number}``."""
    channel = Channel(connection)
    try:
        found = synthesise(channel.receive(SynthesisJob))
    except XttsbenchError as error:
        channel.send({"error": str(error), "exit_code": error.exit_code})
    else:
        channel.send({"done": found.model_dump(mode="json")})
    return 0


def synthesise(job: SynthesisJob) -> Synthesised:
    """Speak a text and write the WAV file.

    Raises:
        InvalidInputError: the checkpoint, the speaker or the reference cannot be used, or the file cannot be written.
    """
    notes: list[str] = []
    found, run_directory = find_checkpoint(Path(job.checkpoint), notes.append)
    origin = found.run.origin
    if origin.vocabulary != VOCABULARY:
        raise InvalidInputError(
            f"{job.checkpoint}: the model knows {origin.vocabulary} symbols, and this version of xttsbench has "
            f"{VOCABULARY}; take the version that trained it"
        )
    # Only now, so that a checkpoint that cannot be used is refused before TensorFlow is imported.
    with quiet_unless_it_fails():
        from xttsbench.training.state import generator_of
        from xttsbench.xtts.evaluate import write_sound

    speaker, reference = voice(job, origin.features, origin.batches.reference_frames, run_directory)
    with quiet_unless_it_fails():
        generator, averaged = generator_of(found)
    began_s = time.monotonic()
    generated = generator([encode(job.text)], reference[None])
    spoken_s = time.monotonic()
    samples = griffin_lim(generated.mels[0], origin.features)
    ended_s = time.monotonic()
    try:
        write_sound(Path(job.out), samples, origin.features.sample_rate_hz)
    except OSError as error:
        raise InvalidInputError(
            f"{job.out} cannot be written ({error.strerror or error}); name another file: --out FILE.wav"
        ) from error
    return Synthesised(
        out=job.out,
        text=job.text,
        left_out=left_out(job.text),
        speaker=speaker,
        step=found.entry.step,
        averaged=averaged,
        seconds=len(samples) / origin.features.sample_rate_hz,
        stopped=bool(generated.stopped[0]),
        synthesis_s=spoken_s - began_s,
        sound_s=ended_s - spoken_s,
        notes=tuple(notes),
    )


def voice(job: SynthesisJob, features: FeatureSettings, frames: int, run_directory: Path) -> tuple[str | None, Floats]:
    """Return the speaker whose voice a job wants, if it is one of the run's, and the reference ``[frames, n_mels]``.

    Raises:
        InvalidInputError: the reference cannot be read or is too short, or the run does not know the speaker.
    """
    if job.reference is not None:
        samples, rate_hz = read_sound(job.reference)
        try:
            mel = log_mel(resample(samples, rate_hz, features.sample_rate_hz), features)
        except ValueError as error:
            raise InvalidInputError(f"{job.reference}: cannot serve as a reference: {error}") from error
        return None, as_reference(mel, features, frames)
    from xttsbench.xtts.evaluate import read_references  # it imports TensorFlow

    known = read_references(run_directory)
    if not known:
        raise InvalidInputError(
            f"{run_directory}: holds no references of its speakers; name a voice: --reference FILE.wav"
        )
    speaker = next(iter(known)) if job.speaker is None else job.speaker
    if speaker not in known:
        nearest = difflib.get_close_matches(speaker, known, n=5) or list(known)[:5]
        raise InvalidInputError(
            f"{run_directory}: knows no speaker {speaker!r} among {len(known)}; the nearest names: {', '.join(nearest)}"
        )
    return speaker, known[speaker]


if __name__ == "__main__":
    answer(serve, "xttsbench.worker.synthesize")
