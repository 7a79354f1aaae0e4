"""Properties of every legal run."""

import json
from collections import Counter
from random import Random

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.flows.notebook.payloads.values import StagePlan
from detent.flows.notebook.state.decisions import Decision
from detent.flows.notebook.state.deltas import from_data, to_data
from detent.flows.notebook.state.facts import Facts
from detent.flows.notebook.state.ledger import Ledger
from detent.flows.notebook.state.machine import ROWS, targets
from detent.flows.notebook.state.payload_errors import PayloadMismatch, PayloadMissing
from detent.flows.notebook.state.state_checks import check_state
from detent.flows.notebook.state.state_json import export_state, json_schema, read_state, write_state
from detent.flows.notebook.state.transitions import apply
from detent.kernel.errors import InvalidTransitionError
from tests.flows.notebook.state.samples import (
    AT,
    STAGES,
    STEPS,
    behaved,
    behavior,
    idle,
    in_behavior,
    in_step,
    reflection,
    stage,
    stage_reflection,
    started,
    step_done,
)
from tests.flows.notebook.state.walks import walk

VALIDATOR = jsonschema.Draft202012Validator(json_schema())
seeds = st.integers(0, 2**32)


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_every_exported_state_fits_the_schema_and_what_its_state_demands(seed):
    """N-02, N-04, N-06, N-08, N-10, N-12, N-56, N-60."""
    seen = set()
    for decision, _, _, run in walk(Random(seed)):
        exported = export_state(run.document)
        assert VALIDATOR.is_valid(exported)
        assert check_state(run.document) == ()
        assert run.document.fsm.state is decision.to
        assert run.document.fsm.last_transition is decision.event
        behavior_id = run.document.location.behavior_id
        if decision.row in ("3", "5b"):
            assert behavior_id not in seen
            seen.add(behavior_id)


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_outputs_are_neither_lost_nor_doubled(seed):
    """N-58."""
    printed = []
    for decision, facts, _, run in walk(Random(seed)):
        if decision.row == "4":
            printed += [text for cell in facts.outputs for text in cell]
        effects = run.document.state.effects
        assert [*effects.history, *effects.current] == printed


def folded(data, delta):
    """What an engine's run makes of changes to its data."""
    for key, value in delta.set.items():
        data[key] = json.loads(json.dumps(value))
    for key, items in delta.append.items():
        data.setdefault(key, []).extend(json.loads(json.dumps(items)))
    return data


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_folding_the_changes_gives_the_state(seed):
    """I5."""
    before = idle()
    data = folded({"cells": ["of another room"]}, to_data(None, before))
    assert from_data(data) == before
    for _, _, _, run in walk(Random(seed)):
        folded(data, to_data(before, run))
        assert from_data(data) == run
        assert read_state(write_state(run.document)) == run.document
        assert Ledger.from_plain(json.loads(json.dumps(run.ledger.to_plain()))) == run.ledger
        before = run


def test_random_runs_take_every_row():
    """Else the properties above would say little."""
    rows = Counter((decision.row, decision.to) for seed in range(400) for decision, *_ in walk(Random(seed)))
    assert set(rows) >= {(row.number, row.to) for row in ROWS}


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([idle, started, in_step, in_behavior, behaved, step_done]),
    st.sampled_from(ROWS),
    st.lists(
        st.sampled_from(
            [
                STAGES,
                STEPS,
                StagePlan((stage("one", "x"),)),
                behavior("load_b1", "frame"),
                behavior("load_b2", "frame"),
                reflection(True),
                reflection(False),
                stage_reflection(True),
                stage_reflection(False),
            ]
        ),
        max_size=3,
    ),
)
def test_no_payload_leads_along_an_unlisted_move(made, row, payloads):
    """N-14, N-69."""
    before = made()
    decision = Decision(row.number, row.event, row.to)
    state = before.document.fsm.state
    try:
        after = apply(before, decision, Facts(AT), *payloads)
    except InvalidTransitionError:
        assert row.to not in targets(state, row.event)
    except (PayloadMissing, PayloadMismatch):
        assert row.to in targets(state, row.event)
    else:
        assert after.document.fsm.state in targets(state, row.event)
