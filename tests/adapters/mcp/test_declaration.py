"""What may be said about an MCP server."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.adapters.mcp.declaration import EffectRules, problems, rules_of
from detent.adapters.mcp.server import McpServer
from detent.kernel.errors import ConfigurationError


def said(**options):
    return [
        f"{'.'.join(way)}: {what}"
        for way, what in problems("docs", {"command": ["x"], "queries": ["a"]} | options)
    ]


def test_a_whole_declaration_has_no_problems():
    assert not said(
        env={"TOKEN": "DOCS_TOKEN"}, effects={"b": {"idempotent": True, "timeout": 5}, "c": None}, timeout=2.5
    )
    assert not said(command=None, url="https://example.org/mcp", headers={"Authorization": "DOCS_AUTH"})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": "http://example.org"}, "not both"),
        ({"command": None}, "needs a command"),
        ({"command": "python server.py"}, "command: takes a list"),
        ({"command": []}, "command: takes a list"),
        ({"command": None, "url": "ftp://example.org"}, "url: takes an http"),
        ({"command": None, "url": "http://[broken"}, "url: takes an http"),
        ({"headers": {"A": "B"}}, "headers: goes with a url only"),
        ({"command": None, "url": "http://h", "env": {"A": "B"}}, "env: goes with a command only"),
        ({"env": ["TOKEN"]}, "env: takes names"),
        ({"queries": "a"}, "queries: takes a list"),
        ({"effects": 3}, "effects: takes a list"),
        ({"effects": ["a"]}, "'a', which is a query already"),
        ({"queries": [], "effects": {}}, "declares no tools"),
        ({"effects": {"b": True}}, "effects.b: takes rules"),
        ({"effects": {"b": {"idempotnt": True}}}, "Did you mean 'idempotent'?"),
        ({"effects": {"b": {"idempotent": "yes"}}}, "effects.b.idempotent: takes true or false"),
        ({"effects": {"b": {"timeout": 0}}}, "effects.b.timeout: takes a number"),
        ({"timeout": float("inf")}, "timeout: takes a number"),
        ({"timeout": True}, "timeout: takes a number"),
        ({"querys": ["b"]}, "querys: is unknown. Did you mean 'queries'?"),
    ],
)
def test_what_cannot_be_used_is_named(options, told):
    assert any(told in line for line in said(**options)), said(**options)


def test_a_secret_written_in_the_place_of_a_variables_name_is_refused_and_not_repeated():
    (line,) = said(env={"TOKEN": "ghp_abcdef0123456789"})
    assert "env.TOKEN: takes the name of an environment variable" in line
    assert "ghp" not in line


def test_all_problems_are_told_at_once():
    with pytest.raises(ConfigurationError) as caught:
        McpServer("docs", command=[], timeout=-1)
    assert all(
        part in str(caught.value) for part in ("'docs'", "'command'", "'timeout'", "declares no tools")
    )


def test_a_name_with_a_dot_is_refused():
    with pytest.raises(ConfigurationError, match="is no name for a server"):
        McpServer("a.b", command=["x"], queries=["q"])


def test_rules_are_given_in_any_of_three_ways():
    assert rules_of(["a"]) == {"a": EffectRules()}
    given = {"a": None, "b": {"timeout": 3}, "c": EffectRules(True)}
    assert rules_of(given) == {"a": EffectRules(), "b": EffectRules(timeout=3), "c": EffectRules(True)}


def test_the_tools_are_there_before_anything_is_connected():
    server = McpServer(
        "docs", command=["/nowhere"], queries=["search"], effects={"add": EffectRules(True)}, cwd=Path("/")
    )
    search, add = server.tools
    assert (search.name, search.kind, search.schema) == ("docs.search", "query", {"type": "object"})
    assert (add.name, add.kind, add.idempotent) == ("docs.add", "effect", True)
