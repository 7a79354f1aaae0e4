"""The project file, the environment and the command line, laid over each other."""

from pathlib import Path

import pytest

from detent.authoring.problem import Place, Problem
from detent.kernel.errors import ConfigurationError
from detent.runtime.settings import SettingsError, known_secrets, read_settings


def read(folder: Path, text: str | None = None, name: str = "detent.yaml", **options):
    if text is not None:
        (folder / name).write_text(text)
    options.setdefault("environ", {})
    return read_settings(folder=folder, **options)


def problems(folder: Path, text: str, **options) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(folder, text, **options)
    return [str(problem) for problem in caught.value.problems]


def test_without_a_file_there_are_no_settings(tmp_path):
    settings = read(tmp_path)
    assert settings.file is None
    assert settings.get("store") is None
    assert settings.get("budget", "steps", default=5) == 5


def test_detent_yaml_is_preferred_to_config_yaml(tmp_path):
    read(tmp_path, "store: old.db", "config.yaml")
    assert read(tmp_path).get("store") == "old.db"
    assert read(tmp_path, "store: new.db").get("store") == "new.db"


def test_the_order_is_command_line_environment_file(tmp_path):
    text = "store: file.db\nbudget: {steps: 1, tokens: 10}\nconcurrency: 3"
    environ = {"DETENT__BUDGET__STEPS": "2", "DETENT_STORE": "env.db", "DETENT__STORE": "weaker.db"}
    settings = read(tmp_path, text, environ=environ)
    assert settings.get("budget") == {"steps": 2, "tokens": 10}
    assert settings.get("store") == "env.db"
    assert settings.get("concurrency") == 3
    assert read(tmp_path, environ=environ, overrides={"store": "here.db"}).get("store") == "here.db"
    assert read(tmp_path, environ=environ, overrides={"store": None}).get("store") == "env.db"


def test_a_named_file_is_read_and_must_be_there(tmp_path):
    (tmp_path / "other.yaml").write_text("store: other.db")
    assert read(tmp_path, config="other.yaml").get("store") == "other.db"
    assert read(tmp_path, environ={"DETENT_CONFIG": "other.yaml"}).get("store") == "other.db"
    with pytest.raises(ConfigurationError, match=r"no settings file gone.yaml \(--config\)"):
        read(tmp_path, config="gone.yaml")


def test_paths_are_relative_to_whoever_said_them(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "p.yaml").write_text("store: x.db")
    settings = read(tmp_path, config="sub/p.yaml")
    assert settings.base("store") == tmp_path / "sub"
    assert read(tmp_path, config="sub/p.yaml", overrides={"store": "y.db"}).base("store") == tmp_path


def test_all_problems_are_told_at_once_with_line_and_nearest_name(tmp_path):
    found = problems(tmp_path, "stor: x.db\nbudget:\n  step: 3\n  tokens: -1\nconcurrency: none\n")
    assert found == [
        "detent.yaml:1:1: unknown heading 'stor'. Did you mean 'store'?",
        "detent.yaml:3:3: unknown key 'budget.step'. Did you mean 'steps'?",
        "detent.yaml:4:3: 'budget.tokens' takes a number above 0.",
        "detent.yaml:5:1: 'concurrency' takes a whole number of 1 or more.",
    ]


def test_a_problem_has_place_path_and_suggestions(tmp_path):
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, "budget:\n  step: 3\n", environ={"DETENT__CONCURRENCY": "0"})
    assert caught.value.problems == [
        Problem("", "unknown key 'budget.step'.", Place("detent.yaml", 2, 3), "budget.step", ("steps",)),
        Problem(
            "", "'concurrency' takes a whole number of 1 or more.", Place("DETENT__CONCURRENCY", 0, 0),
            "concurrency",
        ),
    ]  # fmt: skip
    assert caught.value.problems[1].to_plain()["line"] is None


def test_one_problem_is_one_sentence(tmp_path):
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, "logging: {levle: info}")
    assert str(caught.value) == "detent.yaml:1:11: unknown key 'logging.levle'. Did you mean 'level'?"


def test_an_unknown_key_in_the_environment_names_its_variable(tmp_path):
    with pytest.raises(SettingsError, match="DETENT__BUDGET__STEP: unknown key 'budget.step'"):
        read(tmp_path, environ={"DETENT__BUDGET__STEP": "3"})


@pytest.mark.parametrize(
    "line",
    [
        "model: {api_key: abc}",
        "models: {big: {token: abc}}",
        "mail: {imap: {password: abc}}",
        "steps: {a: {client_secret: abc}}",
        "store: postgresql://me:abc@host/db",
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(tmp_path, line):
    found = problems(tmp_path, line)
    assert any("secrets come from the environment" in problem for problem in found)
    assert not any("abc" in problem for problem in found)


def test_the_name_of_a_secrets_variable_is_no_secret(tmp_path):
    assert (
        read(tmp_path, "model: {provider: x, api_key_env: MY_KEY, max_tokens: 5}").get("model", "max_tokens")
        == 5
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("store: [", "detent.yaml:1:9: This is not valid YAML"),
        ("- a\n- b\n", "holds headings"),
        ("store: a\nstore: b\n", "detent.yaml:2:1: The key 'store' is defined twice"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(tmp_path, text, said):
    with pytest.raises(ConfigurationError, match=said):
        read(tmp_path, text)


def test_headings_of_flows_are_asked_for_only_when_needed(tmp_path):
    asked = []

    def headings(settings):
        asked.append(settings)
        return {"warranty": {"language": None}}

    read(tmp_path, "store: x.db", headings=headings)
    assert not asked
    assert read(tmp_path, "warranty: {language: en}", headings=headings).section("warranty") == {
        "language": "en"
    }
    assert asked
    assert problems(tmp_path, "warranty: {languag: en}", headings=headings) == [
        "detent.yaml:1:12: unknown key 'warranty.languag'. Did you mean 'language'?"
    ]


def test_values_of_the_environment_are_json_where_they_are_json(tmp_path):
    environ = {"DETENT__PLUGINS": '["a", "b"]', "DETENT__CONCURRENCY": "7", "DETENT__STORE": "x.db"}
    settings = read(tmp_path, environ=environ)
    assert settings.get("plugins") == ["a", "b"]
    assert settings.get("concurrency") == 7
    assert settings.get("store") == "x.db"


# -- the user's own file ------------------------------------------------------------------------------------


def own(folder: Path, text: str) -> dict[str, str]:
    """An environment with the user's own file in it."""
    home = folder / "home"
    file = home / ".config" / "detent" / "detent.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return {"HOME": str(home)}


def project(folder: Path) -> Path:
    made = folder / "project"
    made.mkdir(exist_ok=True)
    return made


def test_the_users_file_lies_below_the_project_key_by_key(tmp_path):
    environ = own(tmp_path, "store: mine.db\nbudget: {steps: 1, tokens: 2}\nconcurrency: 3")
    settings = read(project(tmp_path), "store: ours.db\nbudget: {steps: 9}", environ=environ)
    assert settings.get("store") == "ours.db"
    assert settings.get("budget") == {"steps": 9, "tokens": 2}
    assert settings.get("concurrency") == 3


def test_steps_models_and_agents_are_laid_over_each_other_field_by_field(tmp_path):
    environ = own(
        tmp_path,
        "steps: {a: {mode: agent, budget: {tokens: 1}}, b: {mode: agent}}\n"
        "models: {big: {kind: openai, base_url: http://x}}\n"
        "autonomy: {demote: {hard: 1, window: 2}}\n",
    )
    settings = read(
        project(tmp_path),
        "steps: {a: {autonomy: approver, budget: {seconds: 2}}, b: null}\n"
        "models: {big: {base_url: http://y}}\n"
        "autonomy: {demote: {hard: 2}}\n",
        environ=environ,
    )
    assert settings.get("steps", "a") == {"mode": "agent", "autonomy": "approver", "budget": {"seconds": 2}}
    assert settings.get("steps", "b") == {"mode": "agent"}
    assert settings.get("models", "big") == {"kind": "openai", "base_url": "http://y"}
    assert settings.get("autonomy", "demote") == {"hard": 2, "window": 2}


def test_every_key_knows_its_file_and_line(tmp_path):
    environ = own(tmp_path, "\nsteps:\n  a:\n    mode: agent\n    timeout: 3\n")
    settings = read(project(tmp_path), "steps: {a: {timeout: 4}}", environ=environ)
    assert str(settings.place("steps", "a", "mode")) == "~/.config/detent/detent.yaml:4:5"
    assert str(settings.place("steps", "a", "timeout")) == "detent.yaml:1:13"
    assert settings.base("steps", "a", "mode") == tmp_path / "home" / ".config" / "detent"
    assert settings.base("steps", "a", "timeout") == tmp_path / "project"
    assert settings.base("steps", "a", "prompt_file") == tmp_path / "project"


def test_the_users_file_may_be_named_or_lie_where_xdg_says(tmp_path):
    folder = project(tmp_path)
    (tmp_path / "mine.yaml").write_text("concurrency: 7")
    named = {"DETENT_USER_CONFIG": str(tmp_path / "mine.yaml"), **own(tmp_path, "concurrency: 8")}
    assert read(folder, environ=named).get("concurrency") == 7
    (tmp_path / "xdg" / "detent").mkdir(parents=True)
    (tmp_path / "xdg" / "detent" / "detent.yaml").write_text("concurrency: 9")
    assert read(folder, environ={"XDG_CONFIG_HOME": str(tmp_path / "xdg")}).get("concurrency") == 9
    with pytest.raises(ConfigurationError, match=r"no settings file gone.yaml \(DETENT_USER_CONFIG\)"):
        read(folder, environ={"DETENT_USER_CONFIG": "gone.yaml"})


def test_a_mistake_in_the_users_file_names_that_file(tmp_path):
    environ = own(tmp_path, "\nmodel: {api_key: abc}\nstor: x")
    with pytest.raises(SettingsError) as caught:
        read(project(tmp_path), "budget: {step: 1}", environ=environ)
    found = [str(problem) for problem in caught.value.problems]
    assert found[0].startswith("~/.config/detent/detent.yaml:2:9: 'model.api_key' does not belong")
    assert any(one.startswith("~/.config/detent/detent.yaml:3:1: unknown heading") for one in found)
    assert any(one.startswith("detent.yaml:1:10: unknown key 'budget.step'") for one in found)


def test_a_variable_reaches_a_step_whose_name_no_variable_can_spell(tmp_path):
    text = "steps: {commit-message: {timeout: 4}}"
    settings = read(tmp_path, text, environ={"DETENT__STEPS__COMMIT_MESSAGE__MODE": "agent"})
    assert settings.get("steps") == {"commit-message": {"timeout": 4, "mode": "agent"}}
    assert str(settings.place("steps", "commit-message", "mode")) == "DETENT__STEPS__COMMIT_MESSAGE__MODE"
    assert str(settings.place("steps", "commit-message", "timeout")) == "detent.yaml:1:26"


# -- dispatch -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "forced"),
    [("true", True), ("True", True), ("1", True), ("YES", True), ("", False), ("false", False), ("0", False)],
)
def test_the_environment_can_switch_agents_off(tmp_path, said, forced):
    """D-60"""
    assert read(tmp_path, environ={"DETENT_FORCE_DETERMINISTIC": said}).force_deterministic is forced


def test_a_switch_that_is_neither_on_nor_off_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="DETENT_FORCE_DETERMINISTIC: takes true, 1 or yes"):
        read(tmp_path, environ={"DETENT_FORCE_DETERMINISTIC": "maybe"})


def test_rules_of_evidence_and_prices_are_checked_with_their_lines(tmp_path):
    found = problems(
        tmp_path,
        "agreement: {min_n: 0, min_lower95: 2, windw: 3}\n"
        "autonomy:\n  demote: {enabled: maybe, floor: boss, hard: x}\n"
        "prices:\n  m: {input: -1, output: 2}\n  n: {input: 1}\n  o: 3\n",
    )
    assert sorted(found) == sorted(
        [
            "detent.yaml:1:39: unknown key 'agreement.windw'. Did you mean 'window'?",
            "detent.yaml:1:13: 'agreement.min_n' takes a whole number of 1 or more.",
            "detent.yaml:1:23: 'agreement.min_lower95' takes a share from 0 to 1.",
            "detent.yaml:3:41: 'autonomy.demote.hard' takes a whole number of 1 or more.",
            "detent.yaml:3:12: 'autonomy.demote.enabled' takes true or false.",
            "detent.yaml:3:28: 'autonomy.demote.floor' takes one of "
            "operator, collaborator, consultant, approver.",
            "detent.yaml:5:7: 'prices.m.input' takes USD per million tokens, 0 or more.",
            "detent.yaml:6:3: 'prices.n' takes both input and output.",
            "detent.yaml:7:3: 'prices.o' takes both input and output.",
        ]
    )


def test_known_secrets_are_values_of_variables_that_sound_secret_or_are_named():
    environ = {
        "ANTHROPIC_API_KEY": "sk-0123456789",
        "AWS_SECRET_ACCESS_KEY": "aws-0123456789",
        "SHORT_TOKEN": "abc",
        "LANG": "en_GB.UTF-8",
        "OTHER": "named-0123456789",
        "DATABASE_URL": "postgresql://me:pass-0123@host/db",
    }
    assert known_secrets(environ, ["OTHER"]) == {
        "sk-0123456789",
        "aws-0123456789",
        "named-0123456789",
        "pass-0123",
        "postgresql://me:pass-0123@host/db",
    }


def test_a_first_problem_makes_no_false_ones_of_headings_that_applications_bring(tmp_path):
    (tmp_path / "detent.yaml").write_text("desk: {size: 1}\nsteps: {}\nsteps: {}\ndeks: {}\n")
    with pytest.raises(SettingsError) as caught:
        read_settings(folder=tmp_path, environ={}, headings=lambda settings: {"desk": {"size": None}})
    said = str(caught.value)
    assert "The key 'steps' is defined twice" in said
    assert "unknown heading 'deks'. Did you mean 'desk'" in said
    assert len(caught.value.problems) == 2


def test_headings_that_cannot_be_asked_for_are_not_called_unknown(tmp_path):
    def broken(settings):
        raise ConfigurationError("the plugin is in doubt")

    (tmp_path / "detent.yaml").write_text("desk: {size: 1}\nsteps: {}\nsteps: {}\n")
    with pytest.raises(SettingsError) as caught:
        read_settings(folder=tmp_path, environ={}, headings=broken)
    assert len(caught.value.problems) == 1
    (tmp_path / "detent.yaml").write_text("desk: {size: 1}\n")
    with pytest.raises(ConfigurationError, match="in doubt"):
        read_settings(folder=tmp_path, environ={}, headings=broken)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("<<: {plugins: [./theirs.py]}\n", 1),
        ("budget: {steps: 3}\n<<: [{keys: {OPENAI_API_KEY: evil.example}}]\n", 2),
        ("models:\n  house:\n    <<: {base_url: http://evil.example}\n", 3),
        ("base: &base {command: [sh]}\nmcp:\n  docs:\n    <<: *base\n", 4),
        ("plugins:\n  - <<: {a: b}\n", 2),
        ("? !!merge x\n: {plugins: [./theirs.py]}\n", 1),
    ],
)
def test_a_merge_key_is_refused_wherever_it_stands(tmp_path, text, line):
    with pytest.raises(ConfigurationError, match=rf"(?m)^ *detent.yaml:{line}:\d: .*(merge key|The tag)"):
        read(tmp_path, text)


def test_a_key_that_is_put_together_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="detent.yaml:1:3: A key must be text"):
        read(tmp_path, "? !!str {=: plugins}\n: [./theirs.py]\n")


def test_a_key_counts_as_the_projects_by_the_name_it_is_loaded_as(tmp_path):
    settings = read(tmp_path, "mcp: {0x10: {command: [sh]}}\n")
    assert settings.of_project("mcp", "0x10")
