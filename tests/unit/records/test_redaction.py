"""What is taken for a secret and what is not, and what a path becomes where who measured is left out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.records.test_records import RECORDS
from xttsbench.errors import UsageError
from xttsbench.records.plan import RunPlan
from xttsbench.records.redaction import MASK, Hidden, Redaction, secret_name

MARKER = "Mark3r-0f-a-secret"
PLAN = RunPlan(kind="diagnose", command="", created_utc="", target="t.py", steps=1, budget_s=1.0)
NAMES = (
    *("--api-key", "--apikey", "--apiKey", "--openai_api_key", "--token", "--hf-token", "--auth.token", "--secret"),
    *(
        "--client-secret",
        "--password",
        "--db_password",
        "--passwd",
        "--pwd",
        "--credential",
        "--auth",
        "--authorization",
    ),
    *("--private-key", "--access-key", "--aws_secret_access_key", "--bearer", "--session", "--session-id", "--cookie"),
    *("--dsn", "--connection-string", "--jwt", "--sas", "--smtp-pass", "API_KEY", "WANDB_API_KEY", "DB_PASSWORD"),
)
SHAPES = (
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "hf_abcdefghijklmnopqrstuvwxyz",
    "sk-proj-abc123def456ghi789",
    "xoxb-123456789012-abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
)
HARMLESS = (
    *("--tokens_per_batch", "4096", "--max-tokens", "512", "--token", "12", "--tokenizer", "data/bpe.model"),
    *("--author", "Ada", "--key", "speaker", "--passes", "3", "--keyboard", "qwerty", "--sort-key", "length"),
    *(
        "--pad-token",
        "<pad>",
        "--eos_token=</s>",
        "--use_auth_token=True",
        "--no-auth",
        "x.csv",
        "--password-file",
        "p",
    ),
    *("--session-length", "30s", "--secret", "false", "--optimizer=adam", "lr=1e-3", "https://host:8080/a?b=c"),
    *("--public-key-column", "k", "--monkey", "see", "--commit", "9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c"),
    *("--label-key", "text", "--surpass", "x", "--compass", "north", "--authority", "a", "--secretary", "b"),
)


@pytest.mark.parametrize("name", NAMES)
def test_an_argument_is_secret_by_its_name(name: str) -> None:
    assert [*Redaction().words([f"{name}={MARKER}"])] == [f"{name}={MASK}"]
    assert Redaction().kept({name.strip("-"): MARKER}, "kwargs") == {name.strip("-"): MASK}
    if name.startswith("-"):
        assert [*Redaction().words([name, MARKER, "data.csv"])] == [name, MASK, "data.csv"]


@pytest.mark.parametrize("value", SHAPES)
def test_a_value_is_secret_by_its_shape_wherever_it_stands(value: str) -> None:
    assert Redaction().kept(["--name", value, f"it was '{value}'"]) == ["--name", MASK, f"it was '{MASK}'"]


def test_passwords_in_addresses_headers_and_json_are_masked() -> None:
    words = ["s3://u:p4ss@host/x?token=abc", "-e", f"API_KEY={MARKER}", "-H", f"Authorization: Bearer {MARKER}"]
    assert [*Redaction().words([*words, '{"api_key": "abc"}'])] == [
        *(f"s3://{MASK}@host/x?token={MASK}", "-e", f"API_KEY={MASK}", "-H", f"Authorization:{MASK}"),
        f'{{"api_key": "{MASK}"}}',
    ]


def test_what_only_sounds_like_a_secret_stays() -> None:
    assert [*Redaction().words(HARMLESS)] == [*HARMLESS]
    said = "session = tf.compat.v1.Session() of basic understanding; password: str; 12 tokens/s, token: a word"
    assert Redaction().text(said) == said


def test_what_is_known_is_masked_in_every_text_and_no_word_of_the_program_is() -> None:
    found = Redaction()
    found.kept(["--api-key", "it's/ladder"])
    guard = Redaction([*found.secrets(), "ladder"])
    assert guard.text("no 'it\\'s/ladder' at https://h/?k=it%27s/ladder, it's/ladder") == (
        f"no '{MASK}' at https://h/?k={MASK}, {MASK}"
    )
    assert guard.kept({"arm": "ladder", "ladder": "ladder"}) == {"arm": "ladder", "ladder": MASK}


def test_no_field_of_a_record_is_taken_for_the_name_of_an_argument() -> None:
    """Some are called so: ``token`` is a function's; only what the user gave is judged by name."""
    odd = {name for kind in RECORDS for name in kind.model_fields if secret_name(name)}
    assert Redaction().kept(dict.fromkeys(odd, "t")) == dict.fromkeys(odd, "t")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("/home/ada/my work/train.py:make", "train.py:make"),
        ('File "/home/ada/my work/a b/train.py", line 3', 'File "a b/train.py", line 3'),
        ("/home/ada/my work", "."),
        ("--- a/home/ada/other/x.py", "--- a…/x.py"),
        ("/home/ada/client/data/x.npy is missing", "…/x.npy is missing"),
        ("/usr/lib/python3.11/json/decoder.py", "…/lib/python3.11/json/decoder.py"),
        ("/v/site-packages/tensorflow/io.py:3", "…/site-packages/tensorflow/io.py:3"),
        ("PATH=/opt/bin:/opt/lib", "PATH=…/bin:…/lib"),
        ("file:///data/corpus", "…/corpus"),
        ("ada@turing, 10.1.2.3:80", "***@***, ***:80"),
        ("12 frames/s, and/or (ms)/step, https://h.org/x/y", "12 frames/s, and/or (ms)/step, https://h.org/x/y"),
    ],
)
def test_a_path_keeps_its_name_alone_and_who_measured_is_left_out(text: str, kept: str) -> None:
    places = [("/home/ada/my work", ""), ("/home/ada", "…/")]
    guard = Redaction(redact=True, places=places, names=["ada", "turing"])
    assert guard.text(text) == kept
    assert guard.text(kept) == kept


def test_every_value_of_an_argument_is_left_out_where_that_is_asked_for_but_of_what_is_compared() -> None:
    guard = Redaction(redact=True, shown={"prefetch"})
    assert guard.kept(("--epochs=3", "--lr", "0.1", "corpus.csv", "-v"), "arguments") == (
        *("--epochs=***", "--lr", "***", "***", "-v"),
    )
    assert guard.kept({"prefetch": 4, "lr": 0.1, "of": {"a": [1, "b"]}}, "kwargs") == {
        **{"prefetch": 4, "lr": MASK, "of": {"a": [MASK, MASK]}}
    }
    assert guard.kept("xttsbench optimize t.py --budget 60 --set lr=1 -- --n 3", "command") == (
        "xttsbench optimize t.py --budget 60 --set 'lr=***' -- --n '***'"
    )


@settings(deadline=None)
@given(st.text(min_size=1), st.sampled_from(NAMES))
def test_masking_again_changes_nothing(text: str, name: str) -> None:
    once = Redaction(redact=True).kept({"command": text, "arguments": [text, f"{name}={text}"], "x": text})
    assert Redaction(redact=True).kept(once) == once


def test_the_same_values_are_known_by_their_digest_and_no_others() -> None:
    plan = PLAN.model_copy(update={"arguments": ("--api-key", MARKER)})
    first = plan.sealed("salt").hidden
    assert first is not None
    assert (first, first.names) == (
        plan.model_copy(update={"command": f"x {MARKER}"}).sealed("salt").hidden,
        ("--api-key",),
    )
    assert MARKER not in first.model_dump_json()
    assert Hidden.of([("--api-key", MARKER)], "other") != first != Hidden.of([("--api-key", MARKER + "x")], "salt")
    assert PLAN.sealed("salt").hidden is None


@pytest.mark.parametrize("given", [{"arguments": ("--api-key=***",)}, {"kwargs": {"x": "***"}}])
def test_a_masked_value_is_asked_for(given: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"(--api-key|x): received '\*\*\*', .* give the value itself"):
        PLAN.model_copy(update=given).sealed("salt")
