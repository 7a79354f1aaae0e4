"""The shape of a payload in words, with a whole example, for the prompts of the roles."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.resources import files

from detent.flows.notebook.payloads import samples, shapes
from detent.flows.notebook.payloads.canonical import canonical
from detent.flows.notebook.payloads.kinds import SAMPLE_FILES, PayloadKind
from detent.flows.notebook.payloads.reading import read_payload
from detent.flows.notebook.payloads.values import BehaviorPlan


@cache
def sample(kind: PayloadKind) -> str:
    """The sample of a payload, as its file has it."""
    return files(samples).joinpath(SAMPLE_FILES[kind]).read_text(encoding="utf-8")


@cache
def shape_of(kind: PayloadKind) -> str:
    """The whole shape of a payload and an example of it."""
    shape = files(shapes).joinpath(f"{kind}.txt").read_text(encoding="utf-8")
    return f"{shape.strip()}\n\nAn example:\n\n{_example(kind)}"


def _example(kind: PayloadKind) -> str:
    value = read_payload(sample(kind), expected=kind).value
    if isinstance(value, BehaviorPlan):  # the sample's agent is a label, which no prompt should teach
        value = replace(value, agent="Explore")
    return canonical(value)
