"""What is registered: intents in words, outputs under contract, tools that exist."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from detent.engine.schemas import schema_of
from detent.flows.workflow.actions import SHIPPED
from tests.flows.workflow.actions.workshop import REGISTRY, Workshop

SPEC = {
    "read_file": "path, encoding='utf-8', max_bytes=1000000",
    "list_files": "pattern='**/*', root='.', limit=1000",
    "write_file": "path, text, if_exists='replace'",
    "copy_file": "source, target",
    "move_file": "source, target",
    "delete_file": "path, missing_ok=False",
    "replace_text": "path, find, replace, regex=False, count=0",
    "extract_text": "text, pattern, group=0",
    "render_template": "template, values",
    "parse_json": "text",
    "dump_json": "value, indent=2",
    "parse_yaml": "text",
    "dump_yaml": "value",
    "check_schema": "value, schema",
    "http_get": "url, headers={}, timeout=30, max_bytes=5000000",
    "http_download": "url, path, timeout=60",
    "run_command": "argv, cwd='.', env={}, timeout=300, check=True, read_only=False",
    "git_status": "",
    "git_diff": "base='HEAD', paths=[]",
    "git_log": "base, limit=50",
    "git_check_and_stage": "paths=['.']",
    "git_stage": "paths",
    "git_unstage": "paths=[]",
    "git_commit": "message, allow_empty=False",
    "git_uncommit": "sha",
    "git_push": "remote='origin', branch=None, set_upstream=True",
    "git_branch": "name, base=None, switch=True, exist_ok=True",
    "compose_commit_message": "files, diff, style='conventional'",
    "run_validation": "stages",
    "apply_fixes": "stages, problems=[]",
    "read_table": "path, format='auto', batch=500",
    "check_rows": "table, rules, max_rejects=0.1",
    "upsert_rows": "database, table, key, batch",
    "restore_rows": "database, table, key, batch",
    "sleep": "seconds=None, until=None",
    "ask_person": "question, choices=[], expires=None, default=None",
    "log_message": "message, level='info'",
    "notify": "message, title='', channel='file'",
}
"""Signatures as section 2.9 lists them. (restore_file takes more names: it undoes each of the others.)"""

FORBIDDEN = ("call", "use", "invoke", "execute", "loop", "return", "import", "query", "propose", "spawn")
"""Openings that say how and not what."""


def test_the_signatures_are_those_of_the_specification():
    """2.9."""
    for name, said in SPEC.items():
        found = []
        for parameter in REGISTRY.actions.get(name).parameters.values():
            default = parameter.default
            shown = parameter.name if default is parameter.empty else f"{parameter.name}={default!r}"
            found.append(shown)
        assert ", ".join(found) == said, name
    assert set(REGISTRY.actions.names) == {*SPEC, "restore_file"}


def test_every_handler_has_an_intent_and_every_intent_a_handler():
    """D-37."""
    for action in REGISTRY.actions:
        assert 20 <= len(action.intent) <= 400, action.name
        assert callable(action.handler)
        assert "{{" not in action.intent
        assert "${{" not in action.intent
    for one in REGISTRY.generators:
        assert 20 <= len(one.intent) <= 400
        assert one.handler is not None


def calls():
    for module in SHIPPED:
        tree = ast.parse(Path(inspect.getfile(module)).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for call in node.decorator_list:
                    if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("action", "generator"):
                        yield node.name, call


def test_intents_are_constants_in_the_call_that_registers():
    """D-38."""
    found = list(calls())
    assert len(found) == len(REGISTRY.actions) + len(REGISTRY.generators)
    for name, call in found:
        (intent,) = [word.value for word in call.keywords if word.arg == "intent"]
        assert isinstance(intent, ast.Constant), name
        assert isinstance(intent.value, str), name


def test_an_intent_says_what_and_not_how():
    """D-39."""
    python = {"dict", "str", "json.loads", "subprocess", "async", "function", "handler", "parameter"}
    for one in (*REGISTRY.actions, *REGISTRY.generators):
        first = one.intent.split()[0].lower().strip(",.")
        assert first not in FORBIDDEN, one.name
        words = set(re.findall(r"[\w.]+", one.intent.lower()))
        assert not words & python, one.name
        assert "_" not in one.intent, one.name
        assert one.intent.endswith("."), one.name


def test_every_output_is_a_mapping_under_a_contract():
    """D-74."""
    for action in REGISTRY.actions:
        schema = schema_of(action.output_schema)
        assert schema["type"] == "object", action.name
        assert schema["required"], action.name


def test_every_tool_named_exists_and_every_rollback_too(tmp_path):
    """2.9."""
    kinds = {tool.name: tool.kind for tool in Workshop(tmp_path).tools()}
    for action in REGISTRY.actions:
        assert all(kinds[name] == "effect" for name in action.effects), action.name
        assert all(kinds[name] == "query" for name in action.queries), action.name
        assert action.rollback is None or action.rollback in REGISTRY.actions


def test_what_cannot_be_undone_is_capped():
    """1.13."""
    capped = {action.name for action in REGISTRY.actions if action.max_autonomy is not None}
    assert capped == {"git_push", "notify"}


@pytest.mark.parametrize(
    ("action", "rollback"),
    [
        ("write_file", "restore_file"), ("copy_file", "restore_file"), ("move_file", "restore_file"),
        ("replace_text", "restore_file"), ("http_download", "restore_file"), ("apply_fixes", "restore_file"),
        ("git_check_and_stage", "git_unstage"),
    ],
)  # fmt: skip
def test_rollbacks_are_those_of_the_specification(action, rollback):
    """2.9."""
    assert REGISTRY.actions.get(action).rollback == rollback
