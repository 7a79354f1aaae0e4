"""The project file, the environment and the command line, laid over each other."""

from pathlib import Path

import pytest

from detent.kernel.errors import ConfigurationError
from detent.runtime.settings import SettingsError, read_settings


def read(folder: Path, text: str | None = None, name: str = "detent.yaml", **options):
    if text is not None:
        (folder / name).write_text(text)
    options.setdefault("environ", {})
    return read_settings(folder=folder, **options)


def problems(folder: Path, text: str, **options) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(folder, text, **options)
    return caught.value.problems


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
        "detent.yaml, line 1: unknown heading 'stor'. Did you mean 'store'?",
        "detent.yaml, line 3: unknown key 'budget.step'. Did you mean 'steps'?",
        "detent.yaml, line 5: 'concurrency' takes a whole number of 1 or more.",
        "detent.yaml, line 4: 'budget.tokens' takes a number above 0.",
    ]


def test_one_problem_is_one_sentence(tmp_path):
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, "logging: {levle: info}")
    assert str(caught.value) == "detent.yaml, line 1: unknown key 'logging.levle'. Did you mean 'level'?"


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
        ("store: [", "detent.yaml, line 1: not valid YAML"),
        ("- a\n- b\n", "holds headings"),
        ("store: a\nstore: b\n", "line 2: 'store' is said twice"),
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
        "detent.yaml, line 1: unknown key 'warranty.languag'. Did you mean 'language'?"
    ]


def test_values_of_the_environment_are_json_where_they_are_json(tmp_path):
    environ = {"DETENT__PLUGINS": '["a", "b"]', "DETENT__CONCURRENCY": "7", "DETENT__STORE": "x.db"}
    settings = read(tmp_path, environ=environ)
    assert settings.get("plugins") == ["a", "b"]
    assert settings.get("concurrency") == 7
    assert settings.get("store") == "x.db"
