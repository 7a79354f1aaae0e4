"""The port to agents: what an executor is, what it gives back, how it fails."""

import inspect
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.dispatch.autonomy import FallbackReason
from detent.dispatch.executor import AgentStreamChunk, Availability, ExecutorResult, StepExecutor
from detent.dispatch.executor_errors import (
    BudgetExhaustedError,
    DispatchError,
    ExecutorError,
    ExecutorTimeoutError,
    OutputSchemaValidationError,
    ReferenceResolutionError,
)
from detent.dispatch.usage import UsageMetadata
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.errors import DetentError

PROVIDERS = ("openai", "anthropic", "httpx2", "pydantic_ai", "xllamacpp", "mcp")


class Echo:
    """The smallest executor there can be: answers with the prompt."""

    async def execute(self, *, step_name: str, agent_name: str, prompt: Any, **rest: Any) -> ExecutorResult:
        chunk = AgentStreamChunk(agent_name, "…", "thinking")
        if (tell := rest.get("event_callback")) is not None:
            await tell(chunk)
        return ExecutorResult(prompt, usage=UsageMetadata(1, 2), events=(chunk,))

    def available(self) -> Availability:
        return Availability(True)


# -- the protocol -------------------------------------------------------------------------------------------


def test_whatever_can_execute_and_tell_whether_it_is_available_is_an_executor():
    """D-14"""
    assert isinstance(Echo(), StepExecutor)


def test_half_an_executor_is_none():
    class Mute:
        def available(self) -> Availability:
            return Availability(False, "it cannot execute anything")

    assert not isinstance(Mute(), StepExecutor)
    assert not isinstance(object(), StepExecutor)


def test_an_executor_is_asked_by_name_for_everything():
    signature = inspect.signature(StepExecutor.execute)
    parameters = list(signature.parameters.values())[1:]
    assert [one.name for one in parameters] == [
        "step_name", "agent_name", "prompt", "instructions", "allowed_tools", "cwd", "output_schema",
        "config", "event_callback", "toolbox",
    ]  # fmt: skip
    assert all(one.kind is one.KEYWORD_ONLY for one in parameters)
    assert [one.name for one in parameters if one.default is one.empty] == [
        "step_name",
        "agent_name",
        "prompt",
    ]
    assert inspect.iscoroutinefunction(StepExecutor.execute)


async def test_an_executor_gives_its_output_usage_and_what_it_said_on_the_way():
    heard: list[AgentStreamChunk] = []

    async def hear(chunk: AgentStreamChunk) -> None:
        heard.append(chunk)

    executor: StepExecutor = Echo()  # type: ignore[assignment]
    result = await executor.execute(
        step_name="s", agent_name="dispatch", prompt={"a": 1}, cwd=Path(), event_callback=hear
    )
    assert (result.output, result.success, result.usage) == ({"a": 1}, True, UsageMetadata(1, 2))
    assert result.events == tuple(heard)
    assert heard[0].chunk_type == "thinking"


def test_being_unavailable_says_why():
    ok, why_not = Availability(False, "ANTHROPIC_API_KEY is not set")
    assert (ok, why_not) == (False, "ANTHROPIC_API_KEY is not set")
    assert Availability(True).why_not == ""


def test_results_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        ExecutorResult(1).output = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        UsageMetadata().input_tokens = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        AgentStreamChunk("a", "b").text = "c"  # type: ignore[misc]


# -- usage --------------------------------------------------------------------------------------------------

TOKENS = st.integers(0, 10**9)
USAGES = st.builds(UsageMetadata, TOKENS, TOKENS, TOKENS, TOKENS, st.none() | st.integers(0, 999).map(float))


@given(USAGES, USAGES, USAGES)
def test_usage_adds_up_in_any_order(one, other, third):
    """D-56"""
    both = one + other
    for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"):
        assert getattr(both, name) == getattr(one, name) + getattr(other, name)
    assert both == other + one
    assert (one + other) + third == one + (other + third)


@given(USAGES, USAGES)
def test_a_sum_with_an_unknown_price_has_an_unknown_price(one, other):
    both = one + other
    if one.total_cost_usd is None or other.total_cost_usd is None:
        assert both.total_cost_usd is None
    else:
        assert both.total_cost_usd == one.total_cost_usd + other.total_cost_usd


def test_free_is_not_unknown():
    assert (UsageMetadata(total_cost_usd=0.0) + UsageMetadata(total_cost_usd=0.0)).total_cost_usd == 0.0
    assert UsageMetadata(total_cost_usd=0.0).to_plain() == {"total_cost_usd": 0.0}
    assert UsageMetadata().to_plain() == {}


@given(USAGES)
def test_usage_becomes_spend(usage):
    """D-56"""
    assert usage.spend == Spend(usage.input_tokens, usage.output_tokens, usage.total_cost_usd or 0.0)
    assert UsageMetadata().spend == NOTHING


@given(USAGES)
def test_usage_survives_being_written_and_read(usage):
    assert UsageMetadata.from_plain(usage.to_plain()) == usage
    assert UsageMetadata.from_plain(None) is None


# -- errors -------------------------------------------------------------------------------------------------

USED = UsageMetadata(5)


@pytest.mark.parametrize(
    ("error", "reason", "transient", "carries"),
    [
        (ExecutorTimeoutError("s", 2.5, 3, USED), "timeout", True,
         {"step_name": "s", "timeout": 2.5, "attempt": 3, "usage": USED}),
        (ExecutorError("lost", step_name="s", attempt=2, transient=True, retry_after=7.0), "exception", True,
         {"step_name": "s", "attempt": 2, "retry_after": 7.0, "usage": None}),
        (ExecutorError("no"), "exception", False, {"step_name": "", "attempt": 1, "retry_after": None}),
        (OutputSchemaValidationError("s", "Ticket", ["/a: missing: b"], attempt=2, usage=USED),
         "schema_violation", False,
         {"step_name": "s", "schema_type": "Ticket", "validation_errors": ("/a: missing: b",), "attempt": 2,
          "usage": USED}),
        (ReferenceResolutionError("agent", "revewer", ["reviewer"], step_name="s"), "exception", False,
         {"reference_type": "agent", "reference_name": "revewer", "available_names": ("reviewer",),
          "step_name": "s"}),
        (BudgetExhaustedError("tokens", 900, 1000, step_name="s"), "budget", False,
         {"limit": "tokens", "spent": 900, "of": 1000, "step_name": "s"}),
    ],
)  # fmt: skip
def test_an_error_carries_what_is_needed_to_go_on(error, reason, transient, carries):
    """Spec 1.4: what each error carries, whether it is tried again, and the reason it leaves in the end."""
    assert isinstance(error, ExecutorError)
    assert isinstance(error, DetentError)
    assert error.reason is FallbackReason(reason)
    assert error.transient is transient
    for name, value in carries.items():
        assert getattr(error, name) == value


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ExecutorTimeoutError("check", 2.5, 3), "'check' was not answered within 2.5 s (attempt 3)."),
        (OutputSchemaValidationError("check", "Ticket", ["/a: missing: b", "/c: must be integer"]),
         "The answer for 'check' does not fit Ticket: /a: missing: b; /c: must be integer"),
        (ReferenceResolutionError("agent", "x", ["a", "b"]), "There is no agent 'x'. There is: a, b."),
        (ReferenceResolutionError("agent", "x", []), "There is no agent 'x'. There is: none."),
        (BudgetExhaustedError("cost_usd", 0.5, 0.4), "The cost_usd budget is used up: 0.5 of 0.4."),
    ],
)  # fmt: skip
def test_an_error_says_where_we_are_and_what_would_have_been_right(error, message):
    assert str(error) == message


def test_an_error_after_both_failed_names_both():
    """D-30"""
    handler = ValueError("no such serial")
    error = DispatchError("check", FallbackReason.TIMEOUT, "not answered within 3 s", handler)
    assert (error.step_name, error.reason, error.agent_error) == (
        "check", FallbackReason.TIMEOUT, "not answered within 3 s"
    )  # fmt: skip
    assert error.handler_error is error.__cause__ is handler
    for part in ("check", "timeout", "not answered within 3 s", "ValueError: no such serial"):
        assert part in str(error)


# -- imports ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "module", ["detent.dispatch.executor", "detent.dispatch.result", "detent.engine.schemas"]
)
def test_the_port_imports_no_provider(module):
    """D-13"""
    code = f"import sys; import {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()).isdisjoint(PROVIDERS)
    assert "detent" in done.stdout.split()


def test_chunks_are_not_part_of_what_a_result_is():
    one, other = ExecutorResult(1), ExecutorResult(1, events=(AgentStreamChunk("a", "b"),))
    assert one == other
    assert [field.name for field in fields(ExecutorResult)][:4] == ["output", "success", "usage", "events"]
