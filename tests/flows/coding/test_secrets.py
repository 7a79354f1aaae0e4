"""Secrets of the environment in requests: hidden where they are shown, never written over by what stands for
them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.flows.coding.kind import Coding
from detent.flows.coding.options import RequestOptions
from detent.flows.coding.wiring import coding_flow
from detent.runtime.settings import read_settings
from tests.flows.coding.desk import DONE, YES, Desk, ScriptedModel, results, says

SECRET = "sk-LIVE-1234567890abcdef"
SHOWN = 'KEY = "[removed]"\n[A secret of the environment is not shown: [removed] stands in its place.]'


def desk(folder: Path, *replies: Any, **more: Any) -> Desk:
    (folder / "conf.py").write_text(f'KEY = "{SECRET}"\n')
    return Desk(
        folder, ScriptedModel([*replies, DONE]), flow_options={"secrets": frozenset({SECRET})}, **more
    )


def update(target: str, patch: str) -> tuple[str, dict[str, Any]]:
    return "update_file", {"filepath": "conf.py", "target": target, "patch": patch}


def replace(content: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"filepath": "conf.py", "content": content, "overwrite": True}


READ = ("read_file", {"filepath": "conf.py"})


async def told(desk: Desk, options: RequestOptions = YES) -> list[str]:
    """The results of a request."""
    async with desk:
        result = await desk.ask("go", options)
        return [turn["content"] for turn in await desk.turns(result.run_id) if turn["role"] == "tool"]


async def test_a_result_says_that_something_is_hidden(tmp_path):
    shown = await told(desk(tmp_path, says("", READ, ("bash", {"command": "cat conf.py"}))))
    assert shown[0] == SHOWN
    assert shown[1].startswith('KEY = "[removed]"\n[exit code 0]\n[A secret of the environment')


async def test_a_file_is_not_overwritten_with_what_stands_for_its_secret(tmp_path):
    whole = replace('KEY = "[removed]"\nDEBUG = 1\n')
    here = desk(tmp_path, says("", READ), says("", whole, update('KEY = "[removed]"', "KEY = 1")))
    async with here:
        result = await here.ask("go", YES)
        turns = await here.turns(result.run_id)
    assert [error for _, _, error in results(turns)] == [None, "invalid_arguments", "not_found"]
    answers = [turn["content"] for turn in turns if turn["role"] == "tool"]
    assert "[removed] stands for a secret that the file holds" in answers[1]
    assert "[removed] stands for a secret that the file holds" in answers[2]
    assert (tmp_path / "conf.py").read_text() == f'KEY = "{SECRET}"\n'


async def test_parts_beside_a_secret_are_edited_and_the_secret_stays(tmp_path):
    await told(desk(tmp_path, says("", READ), says("", update("KEY =", "API_KEY ="))))
    assert (tmp_path / "conf.py").read_text() == f'API_KEY = "{SECRET}"\n'


async def test_the_words_are_written_where_no_secret_is(tmp_path):
    content = "[removed]\n"
    calls = [
        ("write_file", {"filepath": "new.md", "content": content}),
        ("read_file", {"filepath": "new.md"}),
    ]
    assert (await told(desk(tmp_path, says("", *calls))))[1] == content


async def test_the_diff_that_a_person_is_shown_hides_it_too(tmp_path):
    here = desk(tmp_path, says("", update("KEY =", "API_KEY =")), store=SQLiteStore(tmp_path / "runs.db"))
    async with here:
        result = await here.ask("go", RequestOptions())
        (hold,) = (await here.engine.get(result.run_id)).holds.values()
    assert '-KEY = "[removed]"' in hold.about["shown"]
    assert all(SECRET.encode() not in file.read_bytes() for file in tmp_path.glob("runs.db*"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("POSTGRES_PASSWORD", "postgres"), ("DB_PASSWORD", "Password"), ("APP_TOKEN", "DEVELOPMENT"),
        ("API_KEY", "12345678"), ("NODE_ENV", "development-1"), ("MODE_OF_WORK", "a-b-c-d-e-1"),
    ],
)  # fmt: skip
async def test_an_ordinary_word_is_no_secret_whatever_the_variable_is_called(
    tmp_path, monkeypatch, name, value
):
    monkeypatch.setenv(name, value)
    (tmp_path / "detent.yaml").write_text(f"coding: {{pass_env: [{name}, NODE_ENV]}}\n")
    flow = coding_flow(read_settings(folder=tmp_path, headings=lambda settings: Coding().headings()))
    assert flow.hide(f"use {value} here") == f"use {value} here"


async def test_the_value_of_a_variable_named_like_a_key_is_one(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_API_KEY", "k3y-0123456789")
    monkeypatch.setenv("SHOP_PASSPHRASE", "horsebatterystaple")
    flow = coding_flow(read_settings(folder=tmp_path))
    assert flow.hide("k3y-0123456789 and horsebatterystaple") == "[removed] and [removed]"
