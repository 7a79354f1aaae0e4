"""What workflow files may name is gathered from everywhere, and nothing that fails to load is passed over."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detent.flows.workflow.library import shelf_for
from detent.flows.workflow.preflight import check_prerequisites
from detent.flows.workflow.project_registry import built_in_prerequisites, registry_for
from detent.flows.workflow.reading import read_workflow
from detent.flows.workflow.registry import Registry
from detent.flows.workflow.settings import WorkflowSettings
from detent.kernel.errors import ConfigurationError
from detent.runtime.catalog import Catalog
from detent.runtime.entry_points import PluginError
from detent.runtime.settings import Settings, SettingsError, read_settings
from tests.golden import Messages
from tests.runtime import shop_package

MESSAGES = Messages(Path(__file__).with_name("messages.txt"))

ACTION = """
from detent.flows.workflow.registry import action

@action("{name}", intent="Say hello to whoever comes in by the door.")
def hello(who: str = "you") -> dict:
    return {{"said": f"hello {{who}}"}}
"""


def settings_of(folder: Path, text: str = "", **environ: str) -> Settings:
    (folder / "detent.yaml").write_text(text)
    return read_settings(folder=folder, environ=environ, headings=lambda said: Catalog(said).headings())


def registry_of(folder: Path, text: str = "", *plugins: str) -> Registry:
    settings = settings_of(folder, text)
    return registry_for(settings, Catalog(settings, plugins))


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs the stranger's package."""

    def put(points: str = shop_package.POINTS, module: str = shop_package.MODULE) -> None:
        monkeypatch.syspath_prepend(str(shop_package.install(tmp_path / "site", points, module)))

    yield put
    sys.modules.pop("shop_package", None)


# -- settings -----------------------------------------------------------------------------------------------


def test_nothing_said_is_eight_side_by_side_and_four_stages_without_a_command(tmp_path):
    said = WorkflowSettings.read(settings_of(tmp_path))
    assert said == WorkflowSettings(8, None, {}, None, None)
    stages = registry_of(tmp_path).stages
    assert [(one.name, one.command, one.timeout) for one in stages][:4] == [
        ("format", None, 300.0),
        ("lint", None, 300.0),
        ("typecheck", None, 300.0),
        ("test", None, 300.0),
    ]


def test_a_command_is_a_list_or_a_text_split_as_a_shell_would(tmp_path):
    stages = registry_of(
        tmp_path,
        """
        validation:
          stages:
            lint: {command: "ruff check 'my folder'", fix_command: [ruff, check, --fix], timeout: 30}
            docs: {command: [mkdocs, build], timeout: 600}
        """,
    ).stages
    lint, docs = stages.get("lint"), stages.get("docs")
    assert lint.command == ("ruff", "check", "my folder")
    assert (lint.fix_command, lint.timeout) == (("ruff", "check", "--fix"), 30.0)
    assert lint.origin == "detent.yaml:4:13"
    assert (docs.command, docs.fix_command, docs.timeout) == (("mkdocs", "build"), None, 600.0)
    assert stages.get("test").command is None


def test_what_the_settings_leave_unsaid_stays_as_it_was_registered(tmp_path, install):
    install()
    stage = registry_of(tmp_path, "validation: {stages: {shop_docs: {fix_command: mend it}}}").stages.get(
        "shop_docs"
    )
    assert (stage.command, stage.fix_command, stage.timeout) == (("true",), ("mend", "it"), 60.0)


def test_the_environment_can_say_all_of_it(tmp_path):
    settings = settings_of(
        tmp_path,
        DETENT__WORKFLOW__MAX_PARALLEL="3",
        DETENT__VALIDATION__STAGES__TEST__COMMAND='["pytest", "-q"]',
        DETENT__NOTIFY__WEBHOOK_ENV="MY_HOOK",
    )
    said = WorkflowSettings.read(settings)
    assert (said.max_parallel, said.notify_webhook_env) == (3, "MY_HOOK")
    assert said.stages["test"].command == ("pytest", "-q")


def test_a_notice_file_starts_from_the_folder_of_the_file_that_names_it(tmp_path):
    said = WorkflowSettings.read(settings_of(tmp_path, "notify: {folder: out/notices, webhook_env: HOOK}"))
    assert (said.notify_folder, said.notify_webhook_env) == (tmp_path / "out" / "notices", "HOOK")


@pytest.mark.parametrize(
    ("said", "read"),
    [("", None), ("true", True), ("false", False), ("localhost", ("localhost",)),
     ("[localhost, 10.0.0.0/8, '::1']", ("localhost", "10.0.0.0/8", "::1")), ("[]", ())],
)  # fmt: skip
def test_what_may_be_fetched_from_though_it_is_private(tmp_path, said, read):
    settings = settings_of(tmp_path, f"workflow: {{allow_private: {said}}}")
    assert WorkflowSettings.read(settings).allow_private == read


def test_all_problems_of_the_settings_are_told_at_once_with_file_and_line(tmp_path):
    settings = settings_of(
        tmp_path,
        """\
workflow: {max_parallel: 0, allow_private: [localhost, "http://x"]}
validation:
  stages:
    format: {timeout: 29}
    lint: {timeout: 601, command: []}
    test: {command: "pytest 'unclosed"}
    typecheck: {command: 7, fix_command: [mypy, 3]}
    Odd Name: {command: x}
notify:
  folder: 3
  webhook_env: https://hooks.example/very/hidden
""",
    )
    with pytest.raises(SettingsError) as caught:
        WorkflowSettings.read(settings)
    places = [re.match(r"detent\.yaml:(\d+):\d+: '([^']+)'", str(one)) for one in caught.value.problems]
    assert [place and (int(place[1]), place[2]) for place in places] == [
        (1, "workflow.max_parallel"),
        (1, "workflow.allow_private"),
        (4, "validation.stages.format.timeout"),
        (5, "validation.stages.lint.command"),
        (5, "validation.stages.lint.timeout"),
        (6, "validation.stages.test.command"),
        (7, "validation.stages.typecheck.command"),
        (7, "validation.stages.typecheck.fix_command"),
        (8, "validation.stages.Odd Name"),
        (10, "notify.folder"),
        (11, "notify.webhook_env"),
    ]
    MESSAGES.check("# settings with a mistake in every line", "\n".join(map(str, caught.value.problems)))
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workflow: {max_paralel: 3}", "unknown key 'workflow.max_paralel'. Did you mean 'max_parallel'?"),
        ("validation: {stage: {}}", "unknown key 'validation.stage'. Did you mean 'stages'?"),
        (
            "validation: {stages: {test: {comand: x}}}",
            "'validation.stages.test.comand'. Did you mean 'command' or 'fix_command'?",
        ),
        ("notify: {foldre: x}", "unknown key 'notify.foldre'. Did you mean 'folder'?"),
    ],
)
def test_an_unknown_key_names_the_nearest(tmp_path, text, said):
    with pytest.raises(SettingsError, match=r"^detent\.yaml:1:\d+: unknown key") as caught:
        settings_of(tmp_path, text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "workflow: 3",
        "validation: [x]",
        "validation: {stages: x}",
        "validation: {stages: {docs: mkdocs}}",
        "notify: x",
    ],
)
def test_a_heading_takes_named_values(tmp_path, text):
    with pytest.raises(SettingsError, match="takes named values"):
        WorkflowSettings.read(settings_of(tmp_path, text))


# -- what ships ---------------------------------------------------------------------------------------------


def test_the_shipped_actions_and_generators_are_there(tmp_path):
    registry = registry_of(tmp_path)
    assert {"read_file", "write_file", "git_commit", "upsert_rows", "log_message"} <= set(
        registry.actions.names
    )
    assert {"change_summary", "commit_body", "release_notes"} <= set(registry.generators.names)


def test_the_built_in_prerequisites_are_there(tmp_path):
    """D-72."""
    found = {one.name: one.takes_argument for one in built_in_prerequisites(settings_of(tmp_path), {})}
    assert found == {
        "git": False, "git_repo": False, "git_identity": False, "git_remote": False, "executor": False,
        "command": True, "env": True, "package": True, "path": True,
    }  # fmt: skip


async def test_built_in_prerequisites_are_checked_on_this_project(tmp_path):
    """D-72: `executor` is there when the settings name a model that could be asked."""
    text = """
    version: "1.0"
    name: x
    steps:
      - name: a
        type: checkpoint
        requires:
          ["command:no-such-program", "env:MY_KEY", "env:GONE", "package:pyyaml", "path:detent.yaml",
           executor]
    """
    spec = read_workflow(text.encode(), "x.yaml").spec
    assert spec is not None
    settings = settings_of(tmp_path, "model: {provider: ollama, id: m-1}")
    registry = registry_for(settings, Catalog(settings), environ={"MY_KEY": "hidden", "PATH": ""})
    found = {one.name: one for one in await check_prerequisites(spec, registry)}
    assert {name: one.ok for name, one in found.items()} == {
        "command:no-such-program": False, "env:MY_KEY": True, "env:GONE": False, "package:pyyaml": True,
        "path:detent.yaml": True, "executor": True,
    }  # fmt: skip
    assert found["command:no-such-program"].remediation == "Install no-such-program and put it on PATH."
    assert found["env:GONE"].display_name == "variable GONE"
    bare = registry_for(settings_of(tmp_path), Catalog(settings_of(tmp_path)))
    (one,) = [one for one in await check_prerequisites(spec, bare) if one.name == "executor"]
    assert (one.ok, one.message) == (False, "no model is configured")


def test_workflows_are_looked_for_in_the_project_and_beside_the_users_settings(tmp_path):
    settings = settings_of(tmp_path)
    shelf = shelf_for(settings, {"XDG_CONFIG_HOME": str(tmp_path / "xdg")})
    assert [folder for _, folder in shelf.levels][:2] == [
        tmp_path / ".detent" / "workflows",
        tmp_path / "xdg" / "detent" / "workflows",
    ]
    assert shelf_for(settings, {"HOME": "/h"}).levels[1][1] == Path("/h/.config/detent/workflows")
    said = shelf_for(settings, {"DETENT_USER_CONFIG": "mine/own.yaml"})
    assert said.levels[1][1] == tmp_path / "mine" / "workflows"
    assert shelf_for(settings, {}).levels[1][1] is None
    assert "commit-and-push" in shelf.names()


# -- packages and plugins -----------------------------------------------------------------------------------


def test_an_installed_package_brings_one_of_everything(tmp_path, install):
    """D-76: a module, something decorated, or a function that gives such things."""
    install()
    registry = registry_of(tmp_path)
    assert registry.actions.get("shop_refund").rollback == "shop_price"
    assert registry.actions.get("shop_price").origin.startswith("shop_package:")
    assert registry.agents.get("shop_buyer").tools == ("files.read",)
    assert "shop_seller" in registry.agents
    assert registry.generators.get("shop_letter").intent.startswith("Write a letter")
    assert "shop_orders" in registry.context_builders
    assert registry.prerequisites.get("shop_open").remediation == "Come back at eight."
    assert registry.stages.get("shop_docs").command == ("true",)
    assert registry.stages.get("shop_stock").timeout == 300.0


def test_plugins_bring_one_of_everything_too(tmp_path):
    """D-76: a file or a module of the project, told by where it is."""
    (tmp_path / "shop.py").write_text(shop_package.MODULE)
    registry = registry_of(tmp_path, "plugins: [shop.py]")
    for shelf, name in (
        (registry.actions, "shop_price"), (registry.agents, "shop_seller"),
        (registry.generators, "shop_letter"), (registry.context_builders, "shop_orders"),
        (registry.prerequisites, "shop_open"), (registry.stages, "shop_docs"),
    ):  # fmt: skip
        assert name in shelf
    assert registry.actions.get("shop_price").origin == "shop.py:9"


def test_a_module_named_under_plugins_is_loaded_by_its_name(tmp_path):
    (tmp_path / "greeting_actions.py").write_text(ACTION.format(name="greet"))
    registry = registry_of(tmp_path, "plugins: [greeting_actions]")
    assert registry.actions.get("greet").origin == "greeting_actions:4"


def test_a_name_registered_twice_names_both_places(tmp_path, install):
    """D-76."""
    (tmp_path / "one.py").write_text(ACTION.format(name="greet"))
    (tmp_path / "two.py").write_text(ACTION.format(name="greet"))
    with pytest.raises(ConfigurationError, match=r"Two actions are named 'greet': one\.py:4 and two\.py:4\."):
        registry_of(tmp_path, "plugins: [one.py, two.py]")
    install()
    (tmp_path / "two.py").write_text(ACTION.format(name="shop_price"))
    with pytest.raises(ConfigurationError, match=r"'shop_price': shop_package:\d+ and two\.py:4"):
        registry_of(tmp_path, "plugins: [two.py]")


def test_a_projects_own_plugin_stands_in_for_what_ships_and_says_so(tmp_path):
    """2.10: the sample of the specification registers a generator that ships, too."""
    (tmp_path / "one.py").write_text(ACTION.format(name="write_file"))
    registry = registry_of(tmp_path, "plugins: [one.py]")
    mine = registry.actions.get("write_file")
    assert mine.origin == "one.py:4"
    assert mine.instead_of.startswith("detent.flows.workflow.actions.files:")
    assert [(kind, one.name) for kind, one in registry.stand_ins] == [("action", "write_file")]
    assert registry.actions.get("read_file").instead_of == ""
    (tmp_path / "two.py").write_text(ACTION.format(name="write_file"))
    with pytest.raises(ConfigurationError, match=r"'write_file': one\.py:4 and two\.py:4"):
        registry_of(tmp_path, "plugins: [one.py, two.py]")


def test_a_command_for_a_stage_that_has_none_stands_in_for_nothing(tmp_path):
    text = (
        "from detent.workflow import validation_stage\n"
        "lint = validation_stage('lint', command=['ruff', 'check'])\n"
    )
    (tmp_path / "one.py").write_text(text)
    registry = registry_of(tmp_path, "plugins: [one.py]")
    assert registry.stages.get("lint").command == ("ruff", "check")
    assert registry.stand_ins == []


def test_a_package_cannot_stand_in_for_what_ships(tmp_path, install):
    """Whoever installs a package need not know what is in it."""
    install(module=shop_package.MODULE.replace("shop_price", "write_file"))
    with pytest.raises(
        ConfigurationError, match=r"'write_file': detent\.flows\.workflow\.actions\..* and shop_package:\d+"
    ):
        registry_of(tmp_path)


def test_the_same_name_may_stand_for_things_of_different_kinds(tmp_path):
    (tmp_path / "one.py").write_text(
        ACTION.format(name="greet")
        + "\nfrom detent.flows.workflow.registry import agent\n"
        + '@agent("greet", instructions="Say hello.")\ndef greeter(context):\n    return ""\n'
    )
    registry = registry_of(tmp_path, "plugins: [one.py]")
    assert "greet" in registry.actions
    assert "greet" in registry.agents


def test_a_file_that_another_plugin_imports_is_not_taken_for_two(tmp_path):
    (tmp_path / "greeting_source.py").write_text(ACTION.format(name="greet"))
    (tmp_path / "user.py").write_text("from greeting_source import hello\n")
    registry = registry_of(tmp_path, "plugins: [greeting_source.py, user.py]")
    assert "greet" in registry.actions


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("import no_such_module_at_all", "ModuleNotFoundError"),
        ("1 / 0", "ZeroDivisionError"),
        ("def (", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit"),
        (
            'from detent.flows.workflow.registry import action\n@action("x", intent="Short.")\ndef x(): ...',
            "intent of 20",
        ),
    ],
)
def test_what_cannot_be_imported_is_a_configuration_error_and_never_skipped(tmp_path, install, module, said):
    """D-76."""
    install("[detent.generators]\nx = shop_package\n", module)
    with pytest.raises(PluginError, match="shop_package of shop-package cannot be loaded") as caught:
        registry_of(tmp_path)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_plugin_that_cannot_be_imported_is_a_configuration_error(tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_module_at_all")
    with pytest.raises(PluginError, match=r"broken\.py cannot be loaded"):
        registry_of(tmp_path, "plugins: [broken.py]")


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ("[detent.actions]\nx = shop_package:gone\n", "shop_package:gone of shop-package cannot be loaded"),
        ("[detent.actions]\nx = shop_package:boom\n", "shop_package:boom of shop-package cannot be loaded"),
        (
            "[detent.actions]\nx = shop_package:nothing\n",
            "offered as 'x' under detent.actions, but holds none",
        ),
        ("[detent.agents]\nx = shop_package:price\n", r"holds none of those: decorate it with @agent\."),
        ("[detent.actions]\nx = shop_package:NUMBER\n", "holds none of those"),
        ("[detent.context_builders]\nx = shop_package:price\n", r"decorate it with @context_builder\."),
    ],
)
def test_an_entry_point_that_gives_nothing_of_its_kind_is_told(tmp_path, install, points, said):
    more = "\nNUMBER = 3\ndef boom():\n    raise RuntimeError('no')\ndef nothing():\n    return [1, 2]\n"
    install(points, shop_package.MODULE + more)
    with pytest.raises(ConfigurationError, match=said):
        registry_of(tmp_path)


def test_a_handler_nobody_decorated_has_no_intent_and_that_is_told(tmp_path, install, caplog):
    """D-37: usable by code; an agent could not be told what it is for."""
    more = "\ndef weigh(kg: float) -> dict:\n    return {'kg': kg}\n"
    install("[detent.actions]\nshop_weigh = shop_package:weigh\n", shop_package.MODULE + more)
    registry = registry_of(tmp_path)
    assert registry.actions.get("shop_weigh").intent == ""
    assert "shop_weigh" not in registry.intents
    assert "action.no_intent" in caplog.text


def test_intents_can_be_asked_for_and_not_changed(tmp_path):
    intents = registry_of(tmp_path).intents
    assert intents["read_file"] == "Read one text file of the project and return its content unchanged."
    with pytest.raises(TypeError):
        intents["read_file"] = "other"


def test_a_registered_stage_with_too_little_time_is_told_with_its_place(tmp_path, install):
    install(module=shop_package.MODULE.replace("timeout=60", "timeout=5"))
    with pytest.raises(
        ConfigurationError, match=r"shop_package:\d+: the validation stage 'shop_docs' has a timeout"
    ):
        registry_of(tmp_path)
