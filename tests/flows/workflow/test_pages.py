"""The pages about workflows say what the code does."""

import inspect
import json
import re
from pathlib import Path

import pytest

from detent.flows.workflow.checks import check_read
from detent.flows.workflow.project_registry import registry_for
from detent.flows.workflow.reading import read_workflow
from detent.flows.workflow.registry import Action, schema_of
from detent.runtime.catalog import Catalog
from detent.runtime.settings import read_settings

HOME = Path(__file__).parents[3]
GUIDE = (HOME / "docs" / "workflows.md").read_text(encoding="utf-8")
REFERENCE = (HOME / "docs" / "workflow-files.md").read_text(encoding="utf-8")
ACTIONS = (HOME / "docs" / "workflow-actions.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    folder = tmp_path_factory.mktemp("empty")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        settings = read_settings()
        return registry_for(settings, Catalog(settings))


def signature(action: Action) -> str:
    parts = []
    for name, parameter in action.parameters.items():
        default = parameter.default
        if default is inspect.Parameter.empty:
            parts.append(name)
        else:
            parts.append(f"{name}={json.dumps(list(default) if isinstance(default, tuple) else default)}")
    return f"{action.name}({', '.join(parts)})"


def test_the_guide_shows_the_example_as_it_is():
    shown = re.findall(r"<!-- example: (\S+) -->\n```\w+\n(.*?)```", GUIDE, re.DOTALL)
    assert len(shown) == 2
    for path, text in shown:
        assert (HOME / path).read_text(encoding="utf-8") == text


def test_the_page_of_actions_lists_every_action_with_its_signature_intent_output_and_effects(registry):
    for action in registry.actions:
        schema = schema_of(action.output_schema) or {}
        gives = ", ".join(schema.get("properties", {}))
        row = next((line for line in ACTIONS.splitlines() if f"| `{signature(action)}`" in line), None)
        assert row is not None, signature(action)
        assert action.intent in row
        assert f"| {gives} |" in row
        assert all(f"`{effect}`" in row for effect in action.effects)
        assert action.rollback is None or f"`{action.rollback}`" in row


def test_the_page_of_actions_names_nothing_that_is_not_there(registry):
    listed = re.findall(r"^\| `(\w+)\(", ACTIONS, re.MULTILINE)
    assert sorted(listed) == sorted(registry.actions.names)


def test_the_reference_explains_every_code_that_can_be_reported():
    source = (HOME / "src" / "detent" / "flows" / "workflow").glob("*.py")
    reported = set(re.findall(r'"([EW]\d{3})"', "".join(path.read_text(encoding="utf-8") for path in source)))
    assert reported <= set(re.findall(r"^\| ([EW]\d{3}) \|", REFERENCE, re.MULTILINE))


def test_the_yaml_of_the_guide_can_be_read(registry):
    for path in (HOME / "examples" / "workflow").glob("weekly.yaml"):
        read = read_workflow(path.read_bytes(), path.name)
        assert read.spec is not None, read.problems
        codes = {problem.code for problem in check_read(read, registry, lambda name: None)}
        assert codes <= {"E001"}  # its own actions come from the example's plugin
