"""The catalogue: the tools, their arguments as the specification has them, and what is said of wrong ones."""

from __future__ import annotations

import inspect

import pytest

from detent.engine.schemas import check_schema
from detent.engine.tools import Toolbox
from detent.flows.coding.tools.catalogue import SPECS, ToolSettings, coding_tools, problems, refusal

PARAMETERS = {
    "read_file": {"filepath": ..., "start_line": 1, "max_lines": 2000},
    "list_dir": {"directory": ".", "max_entries": 200, "show_hidden": False},
    "glob": {
        "pattern": ..., "directory": ".", "recursive": True, "include_hidden": False,
        "exclude_dirs": [".git", "node_modules", "__pycache__",
        ".venv"], "max_results": 500, "sort_by": "name",
        "case_sensitive": True, "use_gitignore": True,
    },
    "grep": {
        "pattern": ..., "directory": ".", "case_sensitive": False, "use_regex": True, "include_files": None,
        "exclude_files": None, "max_results": 50, "context_lines": 2,
    },
    "write_file": {"filepath": ..., "content": ..., "overwrite": False},
    "update_file": {"filepath": ..., "target": ..., "patch": ..., "replace_all": False},
    "bash": {"command": ..., "cwd": ".", "timeout": 120, "env": {}},
    "task": {"description": ..., "prompt": ..., "profile": "analyzer", "max_iterations": 10},
    "ask": {"question": ..., "choices": []},
    "todo": {
        "action": ..., "content": None, "todo_id": None, "status": None, "priority": None, "todos": None,
    },
}  # fmt: skip
KINDS = {
    "read_file": "query", "list_dir": "query", "glob": "query", "grep": "query", "write_file": "effect",
    "update_file": "effect", "bash": "effect", "task": "child", "ask": "hold", "todo": "data",
}  # fmt: skip
BY_CODE = {"workspace", "seen", "denied", "secrets", "decided", "seconds"}
"""Arguments that no assistant has."""


def test_every_tool_has_the_parameters_and_defaults_of_the_specification():
    assert {name: spec.kind for name, spec in SPECS.items()} == KINDS
    for name, expected in PARAMETERS.items():
        schema = SPECS[name].parameters
        check_schema(schema)
        assert schema["additionalProperties"] is False
        assert set(schema["properties"]) == set(expected), name
        assert set(schema["required"]) == {key for key, value in expected.items() if value is ...}, name
        defaults = {key: part.get("default") for key, part in schema["properties"].items()}
        assert defaults == {key: None if value is ... else value for key, value in expected.items()}, name
        assert SPECS[name].description
        assert all(part.get("description") for part in schema["properties"].values()), name


def test_every_tool_with_code_takes_what_its_schema_says():
    tools = coding_tools(ToolSettings())
    Toolbox(tools)
    assert [tool.name for tool in tools] == [
        name for name, kind in KINDS.items() if kind in ("query", "effect")
    ]
    for tool in tools:
        spec = SPECS[tool.name]
        assert tool.kind == spec.kind
        assert tool.schema["required"][0] == "workspace"
        parameters = inspect.signature(tool.perform).parameters
        taken = [part for name, part in parameters.items() if name not in ("call", "settings")]
        assert set(tool.schema["properties"]) - BY_CODE == set(spec.parameters["properties"])
        assert {parameter.name for parameter in taken} - BY_CODE == set(spec.parameters["properties"])
        for parameter in taken:
            part = spec.parameters["properties"].get(parameter.name)
            if part is not None and parameter.default not in (parameter.empty, None):
                default = parameter.default
                assert (list(default) if isinstance(default, tuple) else default) == part["default"], (
                    parameter
                )
        if tool.kind == "effect":
            assert tool.preview is not None
            assert tool.wants_call
        if tool.kind == "query":
            assert tool.blocking


def test_an_assistant_cannot_supply_what_code_supplies():
    for spec in SPECS.values():
        for name in BY_CODE:
            assert problems(spec, {name: "x"}) != []


@pytest.mark.parametrize(("tool", "args", "told"), [
    ("read_file", {"filepath": "a"}, []),
    ("read_file", {"filepath": "a", "start_line": 5, "max_lines": 1}, []),
    ("grep", {"pattern": "x", "include_files": ["*.py"], "exclude_files": "*.md"}, []),
    ("bash", {"command": "x", "timeout": 0.5, "env": {"A": "1"}}, []),
    ("write_file", {"filepath": "a", "content": ""}, []),
    ("update_file", {"filepath": "a", "target": "", "patch": ""}, []),
    ("read_file", {}, ["'filepath' is missing"]),
    ("read_file", [], ["the arguments must be an object"]),
    ("read_file", "filepath", ["the arguments must be an object"]),
    ("read_file", {"filepath": 5}, ["'filepath' must be a string"]),
    ("read_file", {"filepath": ""}, ["'filepath' must not be empty"]),
    ("read_file", {"filepath": "a", "start_line": "1"}, ["'start_line' must be an integer"]),
    ("read_file", {"filepath": "a", "start_line": True}, ["'start_line' must be an integer"]),
    ("read_file", {"filepath": "a", "start_line": 0}, ["'start_line' must be at least 1"]),
    ("read_file", {"filepath": None}, ["'filepath' must be a string"]),
    ("bash", {"command": "x", "timeout": 601}, ["'timeout' must be at most 600"]),
    ("bash", {"command": "x", "timeout": 0}, ["'timeout' must be more than 0"]),
    ("bash", {"command": "x", "env": {"A": 1}}, ["'env.A' must be a string"]),
    ("glob", {"pattern": "*",
    "sort_by": "sizes"}, ["'sort_by' must be one of name, modified, size. Did you mean 'size'?"]),
    ("glob", {"pattern": "*", "exclude_dirs": ".git"}, ["'exclude_dirs' must be an array"]),
    ("todo", {"action": "add_multiple", "todos": []}, ["'todos' breaks minItems 1"]),
])  # fmt: skip
def test_what_is_wrong_with_arguments_is_told_in_words(tool, args, told):
    assert problems(SPECS[tool], args) == told


def test_an_unknown_argument_is_told_with_the_nearest_one():
    (told,) = problems(SPECS["read_file"], {"filepath": "a", "max_line": 5})
    assert told.startswith("there is no argument 'max_line'. Did you mean 'max_lines'? Arguments: filepath,")
    two = problems(SPECS["read_file"], {"path": "a"})
    assert [line.split(".")[0] for line in two] == ["there is no argument 'path'", "'filepath' is missing"]


def test_no_value_breaks_the_check():
    for value in (float("nan"), {"a": {1: 2}}, [[]] * 3, "\ud800", 10**5000, b"x", object()):
        for spec in SPECS.values():
            for name in spec.parameters["properties"]:
                assert all(isinstance(told, str) for told in problems(spec, {name: value}))


def test_a_change_that_cannot_be_made_is_known_before_a_person_is_asked(bench):
    bench.put("a", "x")
    settings, base = ToolSettings(), {"workspace": str(bench.root)}

    def code(tool: str, **args) -> str | None:
        error = refusal(settings, tool, {**base, **args})
        return None if error is None else error.code

    assert code("update_file", filepath="a", target="y", patch="") == "not_found"
    assert code("update_file", filepath="a", target="x", patch="y") is None
    assert code("write_file", filepath="a", content="y") == "exists"
    assert code("write_file", filepath="../a", content="y") == "outside_workspace"
    assert code("write_file", filepath=".git/a", content="y") == "protected"
    assert code("write_file", filepath="b", content="y", seen=None) is None
    assert code("bash", command="x") is None
    assert sorted(bench.snapshot()) == ["ws/a"]
