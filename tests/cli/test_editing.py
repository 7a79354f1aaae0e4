"""Changing one value of a settings file and nothing else."""

import pytest

from detent.cli.editing import CannotEdit, changed, write
from detent.kernel.errors import ConfigurationError

WAY = ("steps", "c/j", "autonomy")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "steps:\n  c/j:\n    autonomy: consultant\n"),
        ("# mine\n", "# mine\nsteps:\n  c/j:\n    autonomy: consultant\n"),
        ("store: x.db", "store: x.db\nsteps:\n  c/j:\n    autonomy: consultant\n"),
        (
            "plugins: [a.py]   # ours\n\n# the end\n",
            "plugins: [a.py]   # ours\nsteps:\n  c/j:\n    autonomy: consultant\n\n# the end\n",
        ),
        (
            "steps:\n    other: {mode: agent}  # why\n\nstore: x.db\n",
            "steps:\n    other: {mode: agent}  # why\n    c/j:\n      autonomy: consultant\n\nstore: x.db\n",
        ),
        ("steps:  # none\nstore: x\n", "steps:  # none\n  c/j:\n    autonomy: consultant\nstore: x\n"),
        ("steps: {}\n", "steps: {c/j: {autonomy: consultant}}\n"),
        (
            "steps: { other: {mode: agent} } # s\n",
            "steps: { other: {mode: agent}, c/j: {autonomy: consultant} } # s\n",
        ),
        (
            "steps:\n  c/j:\n    mode: agent  # new\n    autonomy: collaborator  # May\n    shadow: 0.1\n",
            "steps:\n  c/j:\n    mode: agent  # new\n    autonomy: consultant  # May\n    shadow: 0.1\n",
        ),
        (
            "steps:\n  c/j:\n    # say\n    prompt_suffix: |\n      Be brief.\n\n      Be kind.\n  z: {}\n",
            "steps:\n  c/j:\n    # say\n    prompt_suffix: |\n      Be brief.\n\n      Be kind.\n"
            "    autonomy: consultant\n  z: {}\n",
        ),
        ("steps: {'c/j': {mode: agent}}\n", "steps: {'c/j': {mode: agent, autonomy: consultant}}\n"),
        (
            "steps:\n  c/j: {mode: agent, autonomy: \"collaborator\"}\n",
            "steps:\n  c/j: {mode: agent, autonomy: consultant}\n",
        ),
        ("steps:\n  c/j:\n", "steps:\n  c/j:\n    autonomy: consultant\n"),
        ("steps:\n  c/j:\n    autonomy:\n", "steps:\n  c/j:\n    autonomy: consultant\n"),
        (
            "steps:\r\n  c/j:\r\n    mode: agent\r\n",
            "steps:\r\n  c/j:\r\n    mode: agent\r\n    autonomy: consultant\r\n",
        ),
        (
            "models:\n  m:\n    - a\n    - b\n",
            "models:\n  m:\n    - a\n    - b\nsteps:\n  c/j:\n    autonomy: consultant\n",
        ),
    ],
)  # fmt: skip
def test_one_value_changes_and_nothing_else(before, after):
    assert changed(before, [(WAY, "consultant")]) == after
    assert changed(after, [(WAY, "consultant")]) == after


def test_several_changes_are_made_one_after_the_other():
    steps = [(("steps", name, key), value) for name in ("a/b", "c d") for key, value in
             (("mode", "agent"), ("autonomy", "collaborator"))]  # fmt: skip
    assert changed("# x\n", steps) == (
        "# x\nsteps:\n  a/b:\n    mode: agent\n    autonomy: collaborator\n"
        '  "c d":\n    mode: agent\n    autonomy: collaborator\n'
    )


@pytest.mark.parametrize(
    "text",
    [
        "steps: nonsense\n",
        "steps: [a]\n",
        "steps: ~\n",
        "steps:\n  c/j: &here {mode: agent}\n  other: *here\n  c/j2: x\nsteps2: }",
        "base: &base {mode: agent}\nsteps:\n  c/j: *base\n",
        "steps:\n  c/j:\n    autonomy:\n      - consultant\n",
        "steps:\n  c/j:\n    autonomy: >\n      collaborator\n",
        "{plugins: [a.py],\n store: x} # flow\n...\n---\nmore: 1\n",
        "- a list\n",
        "a: b: c\n",
    ],
)
def test_what_cannot_be_changed_safely_is_refused(text):
    with pytest.raises(CannotEdit):
        changed(text, [(WAY, "consultant")])


def test_an_anchor_elsewhere_does_no_harm():
    text = "base: &base {mode: agent}\nsteps:\n  other: *base\n"
    assert changed(text, [(WAY, "consultant")]) == text + "  c/j:\n    autonomy: consultant\n"


def test_the_file_is_replaced_at_one_stroke_and_keeps_its_rights(tmp_path):
    file = tmp_path / "detent.yaml"
    file.write_text("a: 1\n")
    file.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    write(link, b"a: 1\n", "a: 2\n")
    assert (file.read_text(), file.stat().st_mode & 0o777, link.is_symlink()) == ("a: 2\n", 0o640, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["detent.yaml", "flow.py", "link.yaml"]


def test_a_file_changed_meanwhile_is_left_alone(tmp_path):
    file = tmp_path / "detent.yaml"
    file.write_text("a: 3\n")
    with pytest.raises(ConfigurationError, match="changed by another process"):
        write(file, b"a: 1\n", "a: 2\n")
    with pytest.raises(ConfigurationError, match="changed by another process"):
        write(file, None, "a: 2\n")
    assert file.read_text() == "a: 3\n"
