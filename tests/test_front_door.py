"""What a newcomer meets first: the import, the README's example, the demo."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import detent

ROOT = Path(__file__).parent.parent
HEAVY = {"pydantic", "structlog", "typer", "rich", "yaml", "psycopg", "opentelemetry", "asyncio", "sqlite3"}


def test_importing_detent_loads_nothing_heavy():
    code = "import detent, sys; print(*sorted(name.split('.')[0] for name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not HEAVY & set(loaded.split())


def test_importing_the_engine_loads_no_library_of_a_window_or_an_extra():
    code = (
        "from detent import Engine, Machine, Flow; from detent.stores import SQLiteStore; "
        "import sys; print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    tops = {name.split(".")[0] for name in loaded.split()}
    assert not {"typer", "rich", "psycopg", "opentelemetry", "yaml", "pydantic"} & tops


@pytest.mark.parametrize("name", sorted(detent.__all__))
def test_every_name_at_the_front_door_opens(name):
    assert getattr(detent, name) is not None


@pytest.mark.parametrize("name", [name for names in detent._MOVED.values() for name in names.split()])
def test_a_name_that_moved_to_another_door_still_opens_here_and_says_where_it_is(name):
    with pytest.warns(DeprecationWarning, match=r"it is in detent\.\w+ now"):
        assert getattr(detent, name) is not None


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(AttributeError, match=r"has no 'Mashine'.*Machine"):
        _ = detent.Mashine


def test_the_readme_shows_the_first_example_as_it_is():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for path, code in re.findall(r"<!-- example: (\S+) -->\n```python\n(.*?)```", readme, re.DOTALL):
        assert code == (ROOT / path).read_text(encoding="utf-8")


def test_the_first_example_has_under_thirty_lines_of_code():
    lines = (ROOT / "examples/first/flow.py").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) < 30


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The link targets that GitHub derives from a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_to_a_page_and_a_heading_that_exist():
    pages = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")), *ROOT.glob("examples/*/README.md")]
    for page in pages:
        for link, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", prose(page)):
            target = page.parent / link if link else page
            assert target.exists(), f"{page.name} links to {link}"
            assert not anchor or anchor in anchors(target), f"{page.name} links to {link}#{anchor}"


def test_every_name_that_a_page_imports_exists():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for module, names in re.findall(r"^from (detent[\w.]*) import ([^\n#(]+)", text, re.MULTILINE):
            for name in names.split(","):
                assert hasattr(importlib.import_module(module), name.strip()), f"{page.name}: {module}.{name}"


DOORS = (
    "agents", "choreography", "coding", "errors", "kinds", "machines", "models", "observers", "project",
    "refine", "stores", "tools", "workflow",
)  # fmt: skip


@pytest.mark.parametrize("name", ["concepts/dispatch", "concepts/steps", "autonomy", "extending"])
def test_every_class_in_the_code_of_a_page_comes_through_a_door_that_the_page_names(name):
    page = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    rooms = [ROOT / "src/detent" / room for room in ("kernel", "engine", "dispatch", "runtime")]
    source = "\n".join(path.read_text(encoding="utf-8") for room in rooms for path in room.glob("*.py"))
    ours = set(re.findall(r"^class ([A-Z]\w+)", source, re.MULTILINE))
    written = " ".join([
        *re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL),
        *re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)),
    ])  # fmt: skip
    own = set(re.findall(r"^ *class (\w+)", page, re.MULTILINE))
    code = re.sub(r"#.*", "", re.sub(r"\"[^\"\n]*\"", "", written))
    used = set(re.findall(r"(?<![\w./])[A-Z]\w*[a-z]\w*(?=[(.)\],:\s]|$)", code)) & ours - own - {"Kernel"}
    for used_name in sorted(used):
        if used_name in detent.__all__:
            continue
        doors = [door for door in DOORS if hasattr(importlib.import_module(f"detent.{door}"), used_name)]
        assert doors, f"{used_name} has no door"
        imports = [rf"detent\.{door}(\.| import [^\n`]*\b){used_name}\b" for door in doors]
        assert any(re.search(line, page) for line in imports), f"{name} does not import {used_name}"


def test_pages_examples_and_starters_import_nothing_from_where_it_no_longer_is():
    files = [ROOT / "README.md"]
    for folder in ("docs", "examples", "src/detent/flows", "src/detent/apps"):
        files += [file for file in (ROOT / folder).rglob("*") if file.suffix in (".md", ".py", ".yaml")]
    imported = [
        (file.name, name.partition(" as ")[0].strip())
        for file in files
        for names in re.findall(r"\bfrom detent import ([^\n#(]+)", file.read_text(encoding="utf-8"))
        for name in names.split(",")
    ]
    assert len(imported) > 40
    assert [(file, name) for file, name in imported if name not in detent.__all__] == []


def test_every_problem_code_of_flows_in_python_is_on_the_page_about_them():
    page = (ROOT / "docs/concepts/overview.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| ([MF]\d\d) \|", page, re.MULTILINE)
    code = [(ROOT / "src/detent" / name).read_text() for name in ("kernel/machine.py", "engine/flow.py")]
    assert sorted(set(re.findall(r'"([MF]\d\d)"', "".join(code)))) == sorted(listed)


def test_the_demo_answers_a_mailbox_with_no_model_and_no_key(tmp_path):
    """W-68"""
    done = subprocess.run(
        [sys.executable, "-m", "detent", "warranty", "demo"],
        capture_output=True, text=True, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("01 → 02 → 03a → 05", "01 → 03d", "auto_submitted", "TKT-10001", "Bottleneck"):
        assert words in done.stdout, done.stdout
    assert not list(tmp_path.iterdir())  # whoever tries it finds nothing changed


def test_the_batch_example_kills_its_worker_and_loses_nothing():
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/demo/batch.py")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed with SIGKILL" in done.stdout
    assert "each exactly once" in done.stdout


def test_the_page_about_the_command_line_names_every_command():
    help_text = subprocess.run(
        [sys.executable, "-m", "detent", "--help"], capture_output=True, text=True, check=True
    ).stdout
    commands = re.findall(r"^  ([a-z]+)  +[A-Z]", help_text, re.MULTILINE)
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    assert len(commands) > 15
    assert [name for name in commands if f"`{name}" not in page] == []


def test_every_place_the_traceability_page_names_exists():
    page = (ROOT / "docs/traceability.md").read_text(encoding="utf-8")
    places = set(re.findall(r"`((?:src|tests|examples|benchmarks)/[\w./]+)`", page))
    assert len(places) > 50
    assert sorted(place for place in places if not (ROOT / place).exists()) == []


def test_the_code_of_the_overview_runs():
    page = (ROOT / "docs/concepts/overview.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Final State: judge" in done.stdout
