"""Errors of private tools: they may quote arguments, so the journal and the log have only their types."""

from __future__ import annotations

import logging

import pytest

from detent.engine.tools import Tool
from detent.kernel.policy import RetryPolicy
from tests.engine.conftest import journal, one_step

SECRET = "hunter2"


def fails(password):
    raise ValueError(f"refused {password}")


def sends(password):
    return {"ok": True}


FAILING = {
    "in doubt": {"perform": fails},
    "repeated": {"perform": fails, "idempotent": True},
    "not done": {"perform": fails, "probe": fails},
    "confirm": {"perform": sends, "confirm": fails},
    "preview": {"perform": sends, "confirm": "Send?", "preview": fails},
}


@pytest.mark.parametrize("options", FAILING.values(), ids=FAILING)
async def test_the_text_of_an_error_of_a_private_tool_is_kept_nowhere(quick, caplog, options):
    """Its type is."""
    caplog.set_level(logging.DEBUG)
    tool = Tool("send", private=True, retry=RetryPolicy(2, 0.0), **options)

    async def work(ctx):
        await ctx.perform("send", password=SECRET)
        return "done"

    engine = await quick.engine(one_step(work, also=("failed",), tools=[tool]))
    run = await engine.run("flow")
    kept = str(await journal(engine, run.id))
    assert SECRET not in kept
    assert "ValueError" in kept
    assert SECRET not in caplog.text + str([record.__dict__ for record in caplog.records])
