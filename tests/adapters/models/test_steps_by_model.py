"""Steps of real runs performed by a real model: inside the process, and behind a server on a loopback port.

The model knows next to nothing. Constrained decoding keeps its answers inside the contract; whether they are
right is not what is tested.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from detent import Engine, Flow, Machine, Move, Status, Step, when
from detent.adapters.models import local, openai
from detent.adapters.models.executor import ModelStepExecutor
from detent.adapters.models.prices import PriceTable
from detent.agents import DispatchSettings, StepConfig
from detent.dispatch.result import DispatchResult
from detent.kernel.entries import Moved
from detent.stores import MemoryStore
from tests.adapters.models.test_llama_server import llama  # noqa: F401  a fixture


@dataclass
class Form:
    about: Literal["fault", "invoice"]
    urgent: bool


async def read(ctx) -> Form:
    return Form("fault" if "broken" in ctx.data["text"] else "invoice", "!" in ctx.data["text"])


def letters() -> Flow:
    machine = Machine(
        "letters",
        start="read",
        moves={"read": [Move("service", when=when({"about": "fault"})), Move("office")]},
        ends={"service": Status.SUCCEEDED, "office": Status.SUCCEEDED},
    )
    step = Step(
        "read", read, "Say what the letter is about and whether it is urgent.", output_schema=Form,
        inputs=("text",), config=StepConfig.read({"mode": "agent", "autonomy": "approver", "max_tokens": 60}),
    )  # fmt: skip
    return Flow(machine, {"read": step})


class One:
    """A source of executors on one model."""

    default = "it"

    def __init__(self, model: Any) -> None:
        self.model = model

    def make(self, provider: str) -> ModelStepExecutor:
        return ModelStepExecutor(self.model)

    async def close(self) -> None:
        await self.model.close()


async def run_by(model: Any) -> tuple[Any, DispatchResult, list[str]]:
    pieces: list[str] = []

    class Listener:
        def on_stream(self, run_id, flow, step, chunk):
            pieces.append(chunk.text)

    dispatch = DispatchSettings(executors=One(model))
    async with Engine(MemoryStore(), [letters()], dispatch=dispatch, observers=[Listener()]) as engine:
        run = await engine.run("letters", {"text": "The lamp is broken!"})
        (moved,) = [e.body for e in await engine.store.entries(run.id) if isinstance(e.body, Moved)]
    return run, DispatchResult.from_plain(moved.detail), pieces


def check(run: Any, result: DispatchResult, pieces: list[str]) -> None:
    assert run.status is Status.SUCCEEDED
    assert (result.shape, result.fallback_reason) == ("accepted", None)
    assert run.data["about"] in ("fault", "invoice")
    assert isinstance(run.data["urgent"], bool)
    # The conditions on the table chose, not the model.
    assert run.state == ("service" if run.data["about"] == "fault" else "office")
    assert run.total_spend.input_tokens > 0
    assert run.total_spend.output_tokens > 0
    assert run.total_spend.cost_usd == 0.0
    assert '"about"' in "".join(pieces)


async def test_the_model_inside_the_process_performs_a_step(smollm: Path) -> None:
    model = local.connect(
        {"model_id": str(smollm), "context": 2048}, kind="local", folder=smollm.parent, prices=PriceTable()
    )
    check(*await run_by(model))


async def test_a_model_behind_a_loopback_server_performs_a_step(llama, monkeypatch) -> None:  # noqa: F811
    address, key = llama
    monkeypatch.setenv("LLAMA_KEY", key)
    options = {"base_url": f"{address}/v1", "api_key_env": "LLAMA_KEY"}
    check(*await run_by(openai.connect(options, kind="llamacpp")))


def test_runs_by_code_load_no_provider_library(tmp_path: Path) -> None:
    """Not even with models configured: nothing is loaded before an agent is asked."""
    (tmp_path / "flow.py").write_text(
        "from detent import Flow, Machine\n"
        "async def work(ctx) -> dict:\n"
        '    "Do the work."\n'
        '    return {"n": 1}\n'
        'flow = Flow(Machine("m", start="a", moves={"a": ["b"]}, ends=["b"]), {"a": work})\n'
    )
    (tmp_path / "detent.yaml").write_text(
        "model: {provider: claude}\nmodels:\n  claude: {kind: claude}\n  small: {kind: local}\n"
    )
    code = (
        "import sys\n"
        "from detent.cli.main import run\n"
        "code = run(['run', 'flow.py', '--quiet'])\n"
        "heavy = ('anthropic', 'genai_prices', 'httpx2', 'mcp', 'openai', 'pydantic_ai', 'xllamacpp')\n"
        "print('LOADED', code, [name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "LOADED 0 []" in done.stdout, done.stdout + done.stderr
