"""Random edits of the samples: a payload that is whole, or a PayloadError; nothing else (N-89, N-90)."""

from __future__ import annotations

import json
import random
from contextlib import suppress

import pytest

from detent.flows.notebook.payloads.canonical import canonical
from detent.flows.notebook.payloads.code_text import syntax_problem
from detent.flows.notebook.payloads.kinds import KINDS
from detent.flows.notebook.payloads.payload_error import PayloadError
from detent.flows.notebook.payloads.plain import to_plain
from detent.flows.notebook.payloads.reading import read_payload
from detent.flows.notebook.payloads.shape import sample
from tests.examples import examples
from tests.flows.notebook.payloads.test_json_actions import FORMS
from tests.flows.notebook.payloads.test_stage_reflection_shapes import LONG

TOKENS = [
    "<", ">", "&", '"', "'", "=", "</", "/>", "<!--", "-->", "<![CDATA[", "]]>", "&lt;", "&#0;", "&#x10FFFF;",
    "&#xD800;", "\0", "\x1b", "\r\n", "“", "数据", "<b>", "</b>", "<goal>", "</goal>", "</add-code2run>",
    "<add-code2run>", "</actions>", "<stages>", "<step", "```xml\n", "```", "<?x ?>", "<?", "<!DOCTYPE x>",
    '{"action":', "\n[{", '{"a"', '\n{"', '<variable name="x">', "</variable>", "#", "'''", "\\", "\ud800",
    "</goals>", "<think>", "</think>", "     ", " optional", "&nbsp;", "}", "]", ",", "\n", "data: ",
]  # fmt: skip


def edited(text: str, rng: random.Random) -> str:
    for _ in range(rng.randint(1, 5)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice([0, 1, 1, 2, 5, 20, 200]))
        match rng.randrange(5):
            case 0 | 1:
                text = text[:start] + rng.choice(TOKENS) + text[start:]
            case 2:
                text = text[:start] + text[end:]
            case 3:
                at = rng.randrange(len(text) + 1)
                text = text[:at] + text[start:end] + text[at:]
            case 4:
                text = text[:start] if rng.random() < 0.3 else text[:end] + text[start:]
    return text


def texts(kind: str) -> list[str]:
    value = read_payload(sample(kind)).value
    found = [sample(kind), sample(kind).replace("&lt;", "<"), json.dumps(to_plain(value))]
    return found + {"T4": list(FORMS.values()), "T6": [LONG]}.get(kind, [])


@pytest.mark.parametrize("kind", KINDS)
def test_an_edited_sample_is_read_whole_or_refused(kind):
    rng = random.Random(f"payload {kind}")
    sources = texts(kind)
    read = refused = 0
    for _ in range(examples(2400)):
        text = edited(rng.choice(sources), rng)
        try:
            result = read_payload(text, expected=rng.choice([None, kind]), cut=rng.random() < 0.2)
        except PayloadError as error:
            refused += bool(error.problems)
            continue
        read += 1
        assert read_payload(canonical(result.value)).value == result.value
        for action in getattr(result.value, "actions", ()):
            assert action.kind != "add_code" or syntax_problem(action.text) is None
    assert read
    assert refused


def test_random_bytes_are_refused_or_read_and_nothing_else():
    rng = random.Random("bytes")
    for _ in range(examples(1200)):
        size = rng.randrange(60)
        with suppress(PayloadError):
            read_payload(rng.randbytes(size))


@pytest.mark.parametrize(
    "text",
    [
        "<actions>" + "<!--" * 100_000,
        "<actions>" + "<![CDATA[" * 100_000 + "</actions>",
        "<actions>" + "<?" * 100_000 + "</actions>",
        "<actions> " * 100_000,
        "<actions><add-text>" + "&" * 300_000,
        "<actions><add-code2run>x='" + "</add-code2run><add-text>" * 30_000,
        "<actions><add-code2run>" + "(" * 300_000 + "</add-code2run></actions>",
        "<actions><add-code2run>" + "-" * 300_000 + "1</add-code2run></actions>",
        "<stages><remaining><stage><goal>" + "<goal>" * 100_000,
        "<stages><remaining><stage><goal>" + "</gaol> " * 100_000,
        "<stages><remaining>" + '<stage id="' * 60_000,
        "<stages><remaining><stage " + "a=b " * 200_000,
        "<stages>" + "\n" * 900_000 + "</stage>",
        '{"a":' * 150_000,
        "[" * 900_000,
        '{"action":"add","content":"x"}\n' * 30_000,
    ],
    ids=range(16),
)
def test_texts_made_to_take_long_are_refused_in_time_that_grows_with_their_length(text):
    with pytest.raises(PayloadError):
        read_payload(text)
