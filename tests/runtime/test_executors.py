"""Providers by the names settings give them, and the executors made of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.models.executor import ModelStepExecutor
from detent.dispatch.executor import StepExecutor
from detent.kernel.errors import ConfigurationError, IntegrationMissing
from detent.runtime.executors import KINDS, ConfiguredExecutors
from detent.runtime.settings import read_settings


def executors(folder: Path, text: str = "", **environ: str) -> ConfiguredExecutors:
    (folder / "detent.yaml").write_text(text)
    return ConfiguredExecutors(read_settings(folder=folder, environ=environ))


def model_of(executor: Any) -> Any:
    assert isinstance(executor, ModelStepExecutor)
    return executor.model


@pytest.mark.parametrize(
    ("text", "default"),
    [
        ("", None),
        ("models: {big: {kind: openai}}", "big"),
        ("models: {big: {kind: openai}, small: {kind: ollama}}", None),
        ("models: {big: {kind: openai}, small: {kind: ollama}}\nmodel: {provider: small}", "small"),
        ("model: {provider: claude}", "claude"),
        ("models: {big: {kind: openai}}\nmodel: {provider: none}", None),
    ],
)
def test_the_default_is_the_one_said_else_the_only_one(tmp_path, text, default):
    assert executors(tmp_path, text).default == default


def test_a_kind_is_a_provider_with_nothing_configured(tmp_path):
    found = executors(tmp_path)
    for kind in ("openai", "ollama", "vllm", "llamacpp", "claude", "local"):
        assert isinstance(found.make(kind), StepExecutor)
    assert set(KINDS) < set(found.names)


def test_a_provider_has_one_model_and_every_run_an_executor_of_its_own(tmp_path):
    found = executors(tmp_path, "models: {big: {kind: ollama, model_id: m-1}, other: {kind: ollama}}")
    one, two, other = found.make("big"), found.make("big"), found.make("other")
    assert one is not two
    assert model_of(one) is model_of(two)
    assert model_of(one) is not model_of(other)
    assert isinstance(one, ModelStepExecutor)
    assert one.default_model_id == "m-1"
    assert model_of(one).model_id == "m-1"


def test_the_heading_model_speaks_for_the_default_provider_alone(tmp_path):
    found = executors(
        tmp_path,
        "models: {big: {kind: openai, base_url: 'http://127.0.0.1:1/v1'}, small: {kind: openai}}\n"
        "model: {provider: big, id: m-1, base_url: 'http://127.0.0.1:2/v1', api_key_env: MY_KEY}\n",
    )
    big, small = found.provider("big"), found.provider("small")
    assert big.options == {
        "base_url": "http://127.0.0.1:1/v1", "api_key_env": "MY_KEY", "model_id": "m-1"
    }  # fmt: skip
    assert big.model_id == "m-1"
    assert (small.options, small.model_id) == ({}, None)


def test_pydantic_ai_takes_provider_and_model_in_one_name(tmp_path):
    said = executors(tmp_path, "models: {p: {kind: pydantic-ai, model_id: 'test:m'}}").provider("p")
    assert (said.options, said.model_id) == ({"model": "test:m"}, "test:m")


def test_relative_paths_start_from_the_file_that_says_them(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "p.yaml").write_text("models: {mine: {kind: local}}")
    settings = read_settings("sub/p.yaml", folder=tmp_path, environ={})
    assert ConfiguredExecutors(settings).provider("mine").folder == tmp_path / "sub"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "There is no provider 'big'. Providers: openai, ollama"),
        ("models: {bigg: {kind: openai}}", "There is no provider 'big'. Did you mean 'bigg'?"),
        ("models: {big: {}}", "detent.yaml:1:10: 'models.big' needs a kind: openai, ollama"),
        ("models: {big: openai}", "detent.yaml:1:10: 'models.big' takes named values"),
        (
            "models: {big: {kind: opnai}}",
            "detent.yaml:1:16: 'models.big.kind' is not a kind of model. Kinds: openai, ",
        ),
        ("models: {big: {kind: openai, id: a, model_id: b}}", "'models.big' has id and model_id"),
        ("models: {big: {kind: openai, model_id: 3}}", "'models.big.model_id' takes the name of a model"),
    ],
)
def test_a_provider_that_makes_no_sense_says_so(tmp_path, text, told):
    """D-54"""
    with pytest.raises(ConfigurationError) as caught:
        executors(tmp_path, text).make("big")
    assert told in str(caught.value)


def test_an_option_nobody_knows_is_told_with_the_line_of_its_provider(tmp_path):
    found = executors(tmp_path, "\nmodels: {big: {kind: ollama, base_ulr: x}}")
    assert found.refused("big") is not None
    assert str(found.refused("big")).startswith("detent.yaml:2:10: models.big: ")
    assert executors(tmp_path, "models: {big: {kind: ollama}}").refused("big") is None


def test_an_address_without_a_provider_is_told(tmp_path):
    found = executors(tmp_path, "model: {base_url: 'http://127.0.0.1:1'}")
    assert [str(problem) for problem in found.problems()] == [
        "detent.yaml:1:9: 'model.base_url' belongs to a provider; name it with model.provider."
    ]


@pytest.mark.parametrize(
    ("kind", "module", "extra"),
    [("vllm", "openai", "models"), ("claude", "claude", "providers"), ("local", "local", "local")],
)
def test_a_missing_package_says_what_to_install(tmp_path, monkeypatch, kind, module, extra):
    monkeypatch.setitem(sys.modules, f"detent.adapters.models.{module}", None)
    found = executors(tmp_path, f"models: {{big: {{kind: {kind}}}}}")
    with pytest.raises(IntegrationMissing) as caught:
        found.make("big")
    assert f"pip install 'detent[{extra}]'" in str(caught.value)
    assert f"The provider 'big' (kind {kind})" in str(caught.value)
    assert found.refused("big") is None  # found out when it is asked; until then handlers do
    assert found.absent() == str(caught.value)


PACKAGE = """
class Echo:
    closed = 0

    def __init__(self, options, folder):
        self.options, self.folder = options, folder

    async def execute(self, **asked):
        return None

    def available(self):
        return (True, "")

    async def close(self):
        Echo.closed += 1


def make(options, *, folder):
    return Echo(options, folder)
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package with an executor of its own, installed."""
    site = tmp_path / "site"
    info = site / "echo_package-1.dist-info"
    info.mkdir(parents=True)
    (site / "echo_package.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-package\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[detent.executors]\necho = echo_package:make\nbroken = echo_package:gone\n"
    )
    monkeypatch.syspath_prepend(str(site))
    yield
    sys.modules.pop("echo_package", None)


async def test_an_installed_package_can_bring_a_kind(tmp_path, installed):
    found = executors(tmp_path, "models: {mine: {kind: echo, loud: true, id: m}}\nmodel: {provider: mine}")
    one, two = found.make("mine"), found.make("mine")
    assert one is not two
    assert one.options == {"loud": True, "model_id": "m"}  # type: ignore[attr-defined]
    assert one.folder == tmp_path  # type: ignore[attr-defined]
    assert isinstance(found.make("echo"), StepExecutor)
    await found.close()
    assert type(one).closed >= 2  # type: ignore[attr-defined]


def test_an_installed_kind_that_cannot_be_loaded_says_which(tmp_path, installed):
    with pytest.raises(ConfigurationError, match=r"The executor 'broken' \(echo_package:gone\) cannot be"):
        executors(tmp_path).make("broken")


async def test_closing_lets_go_of_every_model_and_a_new_one_can_be_made(tmp_path):
    found = executors(tmp_path, "models: {a: {kind: ollama}, b: {kind: vllm}}")
    before = model_of(found.make("a"))
    found.make("b")
    await found.close()
    await found.close()
    assert model_of(found.make("a")) is not before


def test_prices_of_the_settings_reach_the_model(tmp_path):
    found = executors(
        tmp_path,
        "models: {big: {kind: openai, model_id: house-blend}}\n"
        "prices: {house-blend: {input: 1, output: 2, cache_read: null}}\n",
    )
    model = model_of(found.make("big"))
    assert model.priced("house-blend")
    assert not model.priced("nobody-knows-this-one")


def test_nothing_of_a_provider_is_imported_before_an_executor_is_made(tmp_path):
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from detent.runtime.executors import ConfiguredExecutors\n"
        "from detent.runtime.settings import Settings\n"
        "values = {'models': {'big': {'kind': 'openai'}}}\n"
        "found = ConfiguredExecutors(Settings(Path('.'), values=values))\n"
        "assert found.default == 'big' and found.unknown('big') is None\n"
        "heavy = ('httpx2', 'pydantic_ai', 'anthropic', 'xllamacpp', 'detent.adapters.models')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("change", ["base_url: http://two.example/v1", "kind: ollama"])
def test_another_address_or_kind_is_another_server(tmp_path, change):
    """Evidence about the model behind one says nothing about that behind another."""
    house = {"kind": "kind: vllm", "base_url": "base_url: http://one.example/v1"}
    one, other = (
        executors(tmp_path, "models:\n  house:\n    " + "\n    ".join(lines.values())).server_of("house")
        for lines in (house, {**house, change.partition(":")[0]: change})
    )
    assert one == ("vllm", "http://one.example/v1")
    assert one != other


def test_a_preset_without_an_address_is_what_its_name_says(tmp_path):
    assert executors(tmp_path).server_of("ollama") is None
