"""YAML with bounds: what a few lines of aliases, a long text or deep brackets may cost."""

from __future__ import annotations

import pytest
import yaml

from detent.adapters.models.scripted import ScriptedStepExecutor
from detent.engine.yaml_loader import DEEPEST, LONGEST, MOST_VALUES, safe_load
from detent.evals import yaml_lines
from detent.evals.yaml_lines import YamlFault
from detent.flows.playbook.reading import NotYaml, read_yaml
from detent.kernel.errors import ConfigurationError


def laughs(levels: int = 30) -> str:
    """Ten to the power of the levels."""
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (laughs(), f"it may hold {MOST_VALUES:,} values, aliases written out"),
        ("a: " + "x" * LONGEST, f"the text has more than {LONGEST:,} characters"),
        ("[" * 200 + "]" * 200, f"brackets stand inside each other too deeply (at most {DEEPEST} levels)"),
        ("a: &a [*a]", "a value contains itself"),
    ],
    ids=["aliases", "length", "depth", "circle"],
)
def test_a_text_that_passes_a_bound_is_refused_as_any_mistake_is(text, problem):
    with pytest.raises(yaml.YAMLError) as caught:
        safe_load(text)
    assert caught.value.problem == problem


def test_the_place_of_the_alias_too_many_is_known():
    with pytest.raises(yaml.YAMLError) as caught:
        safe_load(laughs())
    assert caught.value.problem_mark.line == 4


def test_aliases_people_write_are_fine():
    text = "usual: &usual {retries: 2}\nfirst: *usual\nsecond: *usual\nthird: {<<: *usual, retries: 3}\n"
    assert safe_load(text)["third"] == {"retries": 3}


def test_cases_scripts_and_step_files_are_read_through_it(tmp_path):
    with pytest.raises(YamlFault, match="aliases written out"):
        yaml_lines.read(laughs())
    with pytest.raises(NotYaml, match="aliases written out"):
        read_yaml(laughs())
    (tmp_path / "script.yaml").write_text(laughs())
    with pytest.raises(ConfigurationError, match="line 5: not valid YAML: it may hold"):
        ScriptedStepExecutor(tmp_path / "script.yaml")
