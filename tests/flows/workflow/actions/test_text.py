"""Actions on texts and values, and the messages written from real diffs."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detent.flows.workflow.actions import text as actions
from detent.flows.workflow.domain.commit_words import kind_of, scope_of
from detent.flows.workflow.domain.diffs import FileChange, read_diff
from detent.flows.workflow.generators import change_summary, commit_body, release_notes
from tests.examples import examples


class TestTemplates:
    @pytest.mark.parametrize(
        ("template", "values", "text"),
        [
            ("a", {}, "a"),
            ("{{a}}{{ a }}", {"a": "x"}, "xx"),
            ("{{ a.b.0 }}", {"a": {"b": ["y"]}}, "y"),
            ("{{ a }}", {"a": "{{ b }}"}, "{{ b }}"),
            ("{{ a }}|{{ b }}|{{ c }}|{{ d }}", {"a": None, "b": True, "c": 1.5, "d": [1]}, "|true|1.5|[1]"),
            ("{ a } {}", {}, "{ a } {}"),
            ("{{ my-name }}", {"my-name": "z"}, "z"),
        ],
    )
    async def test_are_filled_once(self, shop, template, values, text):
        assert (await shop.run("render_template", template=template, values=values)).output["text"] == text

    @pytest.mark.parametrize(
        "template", ["{{ b }}", "{{ a.b }}", "{{ a", "a }}", "{{ a + 1 }}", "{{ a.__class__ }}", "{{}}"]
    )
    async def test_what_stays_open_is_an_error(self, shop, template):
        done = await shop.run("render_template", template=template, values={"a": "secret"})
        assert "cannot be filled" in done.error
        assert "secret" not in done.error


class TestPatterns:
    async def test_groups_by_name_and_number(self, shop):
        said = {"text": "k=v; a=b", "pattern": r"(?P<key>\w)=(\w)"}
        assert (await shop.run("extract_text", **said, group="key")).output["matches"] == ["k", "a"]
        assert (await shop.run("extract_text", **said, group=2)).output["first"] == "v"
        assert "group" in (await shop.run("extract_text", **said, group=3)).error

    async def test_no_match(self, shop):
        assert (await shop.run("extract_text", text="a", pattern="b")).output == {
            "matches": [],
            "first": None,
        }

    @pytest.mark.exhaustive
    async def test_one_that_runs_away_is_given_up(self, shop):
        assert "runaway" in (await shop.run("extract_text", text="a" * 50 + "!", pattern=r"(a|aa)+$")).error


class TestJson:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "NaN",
            "[1e999999, Infinity]",
            '{"a": 1, "a": 2}',
            "[" * 100_000,
            "[" * 300 + "]" * 300,
            "'a'",
        ],
    )
    async def test_what_is_none(self, shop, text):
        assert not (await shop.run("parse_json", text=text)).ok

    async def test_compact(self, shop):
        assert (await shop.run("dump_json", value={"ü": [1]}, indent=None)).output["text"] == '{"ü":[1]}'


LOOK_LIKE_OTHERS = [
    "yes", "no", "on", "0o17", "017", "1e3", "1_000", "~", "null", "-", "<<", "12:30", "0x1F", ".5", "+1",
    "'", "2030-01-31", "%", "@", ".inf", "? a", "a: b", "# x", "", " a ", "a\nb", "\t",
]  # fmt: skip
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | st.sampled_from(LOOK_LIKE_OTHERS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


class TestYaml:
    @given(PLAIN)
    @settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    async def test_what_is_written_reads_back_to_the_same(self, value):
        text = (await actions.dump_yaml(value))["text"]
        back = (await actions.parse_yaml(text))["value"]
        assert back == value
        assert type(back) is type(value)

    async def test_aliases_are_bounded(self, shop):
        bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
            for before, name in zip("abcdef", "bcdefg", strict=True)
        )
        assert not (await shop.run("parse_yaml", text=bomb)).ok

    @pytest.mark.parametrize(
        "text", ["!!python/object/apply:os.system [ls]", "a: 1\na: 2", "a: [", "--- 1\n--- 2"]
    )
    async def test_what_is_refused(self, shop, text):
        done = await shop.run("parse_yaml", text=text)
        assert "line" in done.error


class TestSchemas:
    async def test_every_place_is_told(self, shop):
        schema = {"type": "array", "items": {"type": "integer"}}
        done = await shop.run("check_schema", value=["x"] * 60, schema=schema)
        assert len(done.output["problems"]) == 60
        assert (await shop.run("check_schema", value=[1], schema=schema)).output == {
            "valid": True,
            "problems": [],
        }

    async def test_a_schema_that_is_none(self, shop):
        assert "no JSON Schema" in (await shop.run("check_schema", value=1, schema={"type": "nope"})).error


class TestMessages:
    async def test_of_a_real_change(self, shop):
        """2.9: type from the paths and shares, scope from the common folder, a line per file."""
        shop.repository("src/shop/cart.py", "src/shop/old.py")
        shop.write("src/shop/old.py", "x = 1\n" * 30)
        shop.git("commit", "-qam", "x")
        shop.write(
            "src/shop/cart.py",
            "src/shop/cart.py\n\n\ndef total(cart):\n    return 1\n\n\nclass Basket:\n    pass\n",
        )
        shop.git("mv", "src/shop/old.py", "src/shop/new.py")
        shop.write("src/shop/pic.png", b"\x89PNG\0\1")
        staged = (await shop.run("git_check_and_stage")).output
        done = await shop.run("compose_commit_message", files=staged["files"], diff=staged["diff"])
        assert done.output["subject"] == "feat(shop): add total and Basket"
        assert done.output["body"].splitlines() == [
            "- src/shop/cart.py (+8 -0)",
            "- src/shop/new.py (renamed from src/shop/old.py, +0 -0)",
            "- src/shop/pic.png (new, binary)",
        ]

    @pytest.mark.parametrize(
        ("paths", "kind"),
        [
            (["tests/test_a.py"], "test"),
            (["src/a_test.go", "x.spec.ts"], "test"),
            (["docs/a.md", "README.md"], "docs"),
            (["pyproject.toml", ".github/workflows/ci.yml"], "build"),
            (["Dockerfile"], "build"),
            (["tests/test_a.py", "src/a.py"], "feat"),
            (["README.md", "a.py"], "feat"),
        ],
    )
    def test_the_type_comes_from_the_paths(self, paths, kind):
        assert kind_of([FileChange(path, added=10, removed=1) for path in paths]) == kind

    def test_or_from_how_much_came_and_went(self):
        assert kind_of([FileChange("a.py", added=70, removed=30)]) == "feat"
        assert kind_of([FileChange("a.py", added=69, removed=31)]) == "fix"
        assert kind_of([FileChange("a.py", added=0, removed=5)]) == "fix"

    @pytest.mark.parametrize(
        ("paths", "scope"),
        [
            (["a.py"], ""),
            (["src/a.py"], ""),
            (["src/x/a.py", "src/x/y/b.py"], "x"),
            (["x/a", "y/b"], ""),
            (["p/q/a"], "q"),
        ],
    )
    def test_the_scope_is_the_common_folder(self, paths, scope):
        assert scope_of([FileChange(path) for path in paths]) == scope

    @given(
        st.lists(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=120),
            min_size=1,
            max_size=80,
        )
    )
    @settings(
        max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    async def test_a_subject_has_72_characters_at_most_on_one_line(self, names):
        from detent.flows.workflow.actions.messages import compose_commit_message

        for style in ("conventional", "plain"):
            said = await compose_commit_message([f"d/{name}" for name in names], "", style)
            assert 1 <= len(said["subject"]) <= 72

    async def test_no_changes_and_no_such_style(self, shop):
        assert "no changes" in (await shop.run("compose_commit_message", files=[], diff="")).error
        done = await shop.run("compose_commit_message", files=["a"], diff="", style="conventionel")
        assert "Did you mean 'conventional'?" in done.error

    async def test_an_agents_own_words_may_stand_if_they_keep_the_form(self, shop):
        """D-16: passed by the step's validator."""
        said = {"files": ["a.py"], "diff": ""}
        good = {"subject": "fix: count again", "body": "Because.", "message": "fix: count again\n\nBecause."}
        done = await shop.run("compose_commit_message", agent={"output": good}, **said)
        assert done.dispatch.agent_result_accepted
        assert done.output == good
        for change in (
            {"subject": "Count", "message": "Count\n\nBecause."}, {"message": "other"},
            {"subject": f"fix: {'x' * 80}", "message": f"fix: {'x' * 80}\n\nBecause."},
            {"body": "- src/other.py (+1 -0)", "message": "fix: count again\n\n- src/other.py (+1 -0)"},
        ):  # fmt: skip
            done = await shop.run("compose_commit_message", agent={"output": {**good, **change}}, **said)
            assert done.dispatch.fallback_used, change


def test_a_diff_that_looks_like_one_inside_is_not_misread():
    """Lines of a hunk are counted, whatever they look like."""
    diff = (
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@\n"
        "--- a/y\n+++ b/z\n+diff --git a/q b/q\n keep\n"
        'diff --git "a/t\\tab" "b/t\\tab"\nnew file mode 100644\n--- /dev/null\n'
        '+++ "b/t\\tab"\n@@ -0,0 +1 @@\n+a\n'
        "diff --git a/e b/e\nnew file mode 100644\n"
    )
    found = [(one.path, one.change, one.added, one.removed) for one in read_diff(diff)]
    assert found == [("x", "changed", 2, 1), ("t\tab", "added", 1, 0), ("e", "added", 0, 0)]


class TestGenerators:
    COMMITS = tuple(
        {"subject": subject}
        for subject in (
            "feat(api)!: drop v1",
            "feat: add search",
            "fix(ui): no flicker",
            "chore: tidy",
            "Merge branch 'x'",
        )
    )

    def test_a_summary_counts_and_lists(self):
        said = change_summary(list(self.COMMITS[:1]), [{"path": "a.py", "added": 3, "removed": 1}])
        assert said == (
            "1 commit, 1 file changed: 3 lines added, 1 line removed.\n\nCommits:\n- feat(api)!: drop v1\n\n"
            "Files:\n- a.py (+3 -1)"
        )
        assert change_summary([], []) == "Nothing changed."

    def test_release_notes_are_sorted_by_what_matters(self):
        assert release_notes(list(self.COMMITS), version="2.0") == (
            "# 2.0\n\n## Breaking changes\n\n- **api**: Drop v1\n\n## New\n\n- Add search\n\n## Fixed\n\n"
            "- **ui**: No flicker\n\n## Other changes\n\n- Merge branch 'x'\n\n"
            "And 1 change behind the scenes."
        )
        assert "Nothing changed" in release_notes([])

    def test_a_body_says_what_came_and_went(self):
        head = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n"
        diff = f"{head}@@ -1 +1 @@\n-def old_one():\n+def new_one():\n"
        assert commit_body(["a.py"], diff) == "- a.py (+1 -1)\n\na.py brings new_one.\na.py loses old_one."
        assert commit_body() == ""
