"""Playbooks held against themselves: every code has a folder that triggers it."""

from __future__ import annotations

import pytest

from detent.authoring.problem import DocumentError
from detent.flows.playbook.checks import check_playbook
from detent.flows.playbook.flow import playbook_flow
from tests.flows.playbook.bench import World, step_file, write

FIRST = step_file("01-a", call="[]", next="[02-b]")
LAST = step_file("02-b", call="[]")
MAIL = "[send_email]"

FOLDERS = {
    "P01": ({"playbook.yaml": "start: 03-c\n", "01-a": FIRST, "02-b": LAST}, "p/playbook.yaml", 1),
    "P02": ({"01-a": FIRST, "02-b": "no front matter"}, "p/steps/02-b.md", 1),
    "P03": ({"01-a": FIRST, "02-b": "---\nname: [\n---\nx"}, "p/steps/02-b.md", 2),
    "P04": ({"01-a": FIRST, "02-b": step_file("02-b", call="[]", version="")}, "p/steps/02-b.md", 1),
    "P05": ({"01-a": FIRST, "02-b": step_file("02-b", call="[]", hendler="x")}, "p/steps/02-b.md", 7),
    "P06": ({"01-a": FIRST, "02-b": step_file("02-b", call="[]", needs="x")}, "p/steps/02-b.md", 7),
    "P07": ({"01-a": FIRST, "02-b": step_file("02-c", call="[]")}, "p/steps/02-b.md", 2),
    "P08": ({"01-a": FIRST, "02-b": step_file("02-b", call="[]", version="one")}, "p/steps/02-b.md", 4),
    "P09": ({"01-a": FIRST, "02-b": step_file("02-b", call="[]", body="")}, "p/steps/02-b.md", 7),
    "P10": ({"01-a": step_file("01-a", call="[]", next="[02-bb]"), "02-b": LAST}, "p/steps/01-a.md", 5),
    "P11": ({"01-a": FIRST, "02-b": step_file("02-b", call="[]", aliases="[A]")}, "p/steps/02-b.md", 7),
    "P12": ({"01-a": FIRST, "02-b": LAST, "03-c": step_file("03-c", call="[]")}, "p/steps/03-c.md", 2),
    "P13": ({"01-a": step_file("01-a", call="[]", next="[{to: 02-b, when: {x: 1}}, DONE]"),
             "02-b": step_file("02-b", call="[]", next="[02-b]")}, "p/steps/02-b.md", 5),
    "P14": ({"01-a": FIRST, "02-b": step_file("02-b", call="[]", available_functions="[send_mail]")},
            "p/steps/02-b.md", 7),
    "P15": ({"01-a": FIRST, "02-b": step_file("02-b", call="[]", available_functions="[{name: lookup}]")},
            "p/steps/02-b.md", 7),
    "P16": ({"01-a": FIRST, "02-b": step_file("02-b")}, "p/steps/02-b.md", 2),
    "P17": ({"01-a": FIRST, "02-b": step_file(
        "02-b", available_functions=MAIL, effects="{send_email: {to: x, template: nix}}")},
        "p/steps/02-b.md", 7),
    "P18": ({"01-a": step_file("01-a", call="[]", next="[02-b, {to: DONE, when: {x: 1}}]"), "02-b": LAST},
            "p/steps/01-a.md", 5),
    "P19": ({"01-a": FIRST, "02-b": step_file("02-b", call="[]", next="[{to: DONE, when: []}]")},
            "p/steps/02-b.md", 5),
    "P20": ({"01-a": FIRST, "02-b": step_file("02-b", call="[]", mode="robot")}, "p/steps/02-b.md", 7),
}  # fmt: skip


def check(folder, **options):
    tools = {tool.name: tool for tool in World().tools()}
    return check_playbook(folder, tools=tools, **options)


@pytest.mark.parametrize("code", FOLDERS)
def test_every_code_has_a_folder_that_triggers_it_and_nothing_else(tmp_path, code):
    """W-10."""
    files, path, line = FOLDERS[code]
    found = check(write(tmp_path / "p", files))
    assert [(one.place.file, one.place.line, one.code) for one in found] == [(path, line, code)]


def test_the_two_files_the_folders_are_made_of_are_fine(tmp_path):
    assert check(write(tmp_path / "p", {"01-a": FIRST, "02-b": LAST})) == []


def test_five_faults_are_reported_at_once(tmp_path, world):
    """W-10: sorted by place, and the flow is refused with all of them."""
    folder = write(
        tmp_path / "p",
        {
            "01-a": step_file("01-a", call="[]", next="[02-bb]", version="1"),
            "02-b": step_file("02-b", next="[{to: 03-c, when: {x: {}}}]", mode="agnet"),
            "03-c": "no front matter",
        },
    )
    expected = [
        ("p/steps/01-a.md", 4, "P08"),
        ("p/steps/01-a.md", 5, "P10"),
        ("p/steps/02-b.md", 5, "P19"),
        ("p/steps/02-b.md", 6, "P20"),
        ("p/steps/03-c.md", 1, "P02"),
    ]
    assert [(one.place.file, one.place.line, one.code) for one in check(folder)] == expected
    with pytest.raises(DocumentError) as caught:
        playbook_flow(folder, tools=world.tools())
    assert [(one.place.file, one.place.line, one.code) for one in caught.value.problems] == expected
    assert caught.value.exit_code == 2
    assert str(caught.value.problems[1]) in str(caught.value)


def test_a_misspelt_step_is_told_with_the_nearest_and_all_of_them(tmp_path):
    """The line as the specification prints it."""
    folder = write(
        tmp_path / "instructions",
        {
            "02-check": step_file("02-check", call="[]", next="\n  - {to: 03-valid, reason: covered}"),
            "03a-valid-case": step_file("03a-valid-case", call="[]"),
        },
    )
    (problem,) = check(folder)
    assert str(problem) == (
        "instructions/steps/02-check.md:6:6: P10 next names '03-valid', which is no step here. "
        "Did you mean '03a-valid-case'? Steps: 02-check, 03a-valid-case, DONE, graceful-degradation, FAILED. "
        "(next[0].to)"
    )


def test_a_folder_that_is_not_there_and_one_without_steps(tmp_path):
    assert [one.code for one in check(tmp_path / "nowhere")] == ["P01"]
    (tmp_path / "steps").mkdir()
    assert [one.code for one in check(tmp_path)] == ["P01"]
    folder = write(tmp_path / "p", {"01-a": FIRST, "02-b": LAST})
    assert [one.code for one in check(folder, overlays=[tmp_path / "gone"])] == ["P01"]


def test_files_may_lie_right_in_the_folder_or_below_instructions(tmp_path):
    flat = {f"{name}.md": text for name, text in (("01-a", FIRST), ("02-b", LAST))}
    assert check(write(tmp_path / "flat", {f"./{name}": text for name, text in flat.items()})) == []
    deep = {f"instructions/steps/{name}": text for name, text in flat.items()}
    assert check(write(tmp_path / "deep", deep)) == []


class TestBetweenFiles:
    def one(self, tmp_path, files, **options):
        return [(one.code, one.message) for one in check(write(tmp_path / "p", files), **options)]

    def test_two_steps_with_the_same_name_behind_their_numbers_collide(self, tmp_path):
        files = {"01-a": step_file("01-a", call="[]", next="[02-a]"), "02-a": step_file("02-a", call="[]")}
        ((code, message),) = self.one(tmp_path, files)
        assert code == "P11"
        assert "'a' is a name of step '01-a', too" in message

    def test_the_names_of_ends_are_taken(self, tmp_path):
        files = {"01-a": FIRST, "02-b": step_file("02-b", call="[]", aliases="[done]")}
        assert self.one(tmp_path, files) == [("P11", "'done' is the name of an end. Give it another name.")]

    def test_a_handler_may_choose_among_edges_without_conditions(self, tmp_path):
        files = {"01-a": step_file("01-a", handler="h", next="[02-b, DONE]"), "02-b": LAST}
        assert self.one(tmp_path, files, handlers={"h": print}) == []

    def test_a_function_that_is_used_must_be_declared(self, tmp_path):
        files = {"01-a": FIRST, "02-b": step_file("02-b", effects="{send_email: {to: x, body: y}}")}
        ((code, message),) = self.one(tmp_path, files)
        assert code == "P14"
        assert "none of this step's available_functions" in message

    def test_a_query_is_no_effect_and_an_effect_no_query(self, tmp_path):
        files = {
            "01-a": step_file(
                "01-a", next="[02-b]", available_functions=MAIL, call="{send_email: {}, into: x}"
            ),
            "02-b": step_file("02-b", available_functions="[lookup]", effects="{lookup: {}}"),
        }
        assert [code for code, _ in self.one(tmp_path, files)] == ["P14", "P14"]

    def test_arguments_a_function_does_not_take_are_told(self, tmp_path):
        mail = "{send_email: {to: x, body: y, colour: red}}"
        files = {"01-a": FIRST, "02-b": step_file("02-b", available_functions=MAIL, effects=mail)}
        ((code, message),) = self.one(tmp_path, files)
        assert code == "P14"
        assert "colour" in message

    def test_text_fields_name_a_declared_function(self, tmp_path):
        files = {"01-a": FIRST, "02-b": step_file("02-b", call="[]", text_fields="{BODY: send_email.body}")}
        assert [code for code, _ in self.one(tmp_path, files)] == ["P14"]

    def test_a_handler_that_cannot_be_found_is_told_with_the_nearest(self, tmp_path):
        files = {"01-a": FIRST, "02-b": step_file("02-b", handler="finnish")}
        ((code, message),) = self.one(tmp_path, files, handlers={"finish": print})
        assert code == "P16"
        assert "Did you mean 'finish'?" in message

    @pytest.mark.parametrize(
        ("handler", "words"),
        [
            ("no.such.module:f", "there is no module 'no'"),
            ("json:no_such", "module 'json' has no function 'no_such'"),
        ],
    )
    def test_a_handler_that_cannot_be_imported_is_told(self, tmp_path, handler, words):
        files = {"01-a": FIRST, "02-b": step_file("02-b", handler=handler)}
        ((code, message),) = self.one(tmp_path, files)
        assert code == "P16"
        assert words in message

    def test_a_placeholder_the_step_has_no_right_to_is_told_with_its_template(self, tmp_path):
        mail = "{send_email: {to: '{{mail.to}}', template: b}}"
        files = {
            "01-a": FIRST,
            "02-b": step_file("02-b", needs="[mail.to]", available_functions=MAIL, effects=mail),
            "templates/b.en.txt": "Hello\n{{mail.from}}",
        }
        ((code, message),) = self.one(tmp_path, files)
        assert code == "P17"
        assert message.startswith("b.en.txt, line 2: {{mail.from}} is not in the step's needs or outputs.")

    def test_every_variant_is_there_in_every_language(self, tmp_path):
        mail = "{send_email: {to: x, template: b}}"
        files = {
            "01-a": FIRST,
            "02-b": step_file("02-b", variant="{short: {x: 1}}", available_functions=MAIL, effects=mail),
            "templates/b.en.txt": "Long.",
            "templates/b.pl.txt": "Długo.",
            "templates/b.short.en.txt": "Short.",
        }
        assert self.one(tmp_path, files) == [("P17", "there is no template file 'b.short.pl.txt'.")]

    def test_a_receipt_is_a_whole_argument(self, tmp_path):
        ticket = (
            "{create_ticket: {serial: x}, send_email: {to: x, body: 'It is {{create_ticket.ticket_id}}.'}}"
        )
        functions = "[create_ticket, send_email]"
        files = {"01-a": FIRST, "02-b": step_file("02-b", available_functions=functions, effects=ticket)}
        ((code, message),) = self.one(tmp_path, files)
        assert code == "P17"
        assert "known only later" in message

    def test_the_redirect_names_what_is_there(self, tmp_path):
        files = {"playbook.yaml": "redirect: sorry\n", "01-a": FIRST, "02-b": LAST}
        assert self.one(tmp_path, files) == [
            ("P17", "there is no template 'sorry': write the file 'sorry.en.txt'.")
        ]

    def test_a_manifest_has_known_keys_of_the_right_kind(self, tmp_path):
        manifest = "nmae: x\nmax_steps: none\ninput: {type: 5}\nprotocol: {BODY: x}\ntools: [no.such]\n"
        files = {"playbook.yaml": manifest, "01-a": FIRST, "02-b": LAST}
        assert [code for code, _ in self.one(tmp_path, files)] == ["P05", "P06", "P15", "P06", "P14"]

    def test_conditions_and_templates_of_an_overlay_are_checked_with_the_whole(self, tmp_path):
        write(tmp_path / "p", {"01-a": FIRST, "02-b": LAST})
        more = write(tmp_path / "more", {"03-c": step_file("03-c", call="[]")})
        found = check(tmp_path / "p", overlays=[more])
        assert [(one.place.file, one.code) for one in found] == [("more/steps/03-c.md", "P12")]


def told(tmp_path, files, **options):
    """Code and message of everything wrong with a folder of such files."""
    return [(one.code, one.message) for one in check(write(tmp_path / "p", files), **options)]


class TestOneMistakeIsToldOnce:
    """What only follows from another problem is not told beside it."""

    def test_a_malformed_condition_does_not_make_the_edges_behind_it_unreachable(self, tmp_path):
        files = {"01-a": step_file("01-a", call="[]", next="[{to: 02-b, when: x == 1}, DONE]"), "02-b": LAST}
        assert [code for code, _ in told(tmp_path, files)] == ["P19"]

    def test_templates_of_a_step_that_cannot_be_read_are_not_called_unused(self, tmp_path):
        files = {"01-a": FIRST, "02-b": "---\nname: a: b\n---\nx", "templates/02-b.en.txt": "Hello."}
        assert [code for code, _ in told(tmp_path, files)] == ["P03"]

    def test_a_misspelt_effects_is_no_missing_handler_too(self, tmp_path):
        files = {"01-a": FIRST, "02-b": step_file("02-b", efects="{send_email: {to: x, body: y}}")}
        assert [code for code, _ in told(tmp_path, files)] == ["P05"]

    def test_functions_and_handlers_of_a_module_that_cannot_be_imported_are_not_unknown_too(self, tmp_path):
        last = step_file("02-b", handler="judge", available_functions="[pay]")
        files = {"playbook.yaml": "tools: [no_such_a]\nhandlers: [no_such_b]\n", "01-a": FIRST, "02-b": last}
        assert told(tmp_path, files) == [
            ("P14", "there is no module 'no_such_a'."),
            ("P16", "there is no module 'no_such_b'."),
        ]

    @pytest.mark.parametrize("manifest", ["tols: [x]\n", "tools: [x\n"])
    def test_nor_are_those_of_a_manifest_that_cannot_be_read(self, tmp_path, manifest):
        last = step_file("02-b", handler="judge", available_functions="[pay]")
        found = told(tmp_path, {"playbook.yaml": manifest, "01-a": FIRST, "02-b": last})
        assert [code for code, _ in found] == ["P05" if "tols" in manifest else "P03"]

    def test_a_copied_file_that_kept_its_name_is_told_by_its_name(self, tmp_path):
        first = step_file("01-a", call="[]", next="[{to: 02-b, when: {x: 1}}, 03-b]")
        files = {"01-a": first, "02-b": LAST, "03-b": LAST}
        assert [code for code, _ in told(tmp_path, files)] == ["P07"]


class TestSuggestions:
    def test_an_unknown_argument_is_named_before_one_that_is_lacking(self, tmp_path):
        last = step_file("02-b", available_functions=MAIL, effects="{send_email: {too: x, body: y}}")
        assert told(tmp_path, {"01-a": FIRST, "02-b": last}) == [
            (
                "P14",
                "'send_email' has no argument 'too'. Did you mean 'to'? It takes: to, body, subject.",
            )
        ]

    def test_a_lacking_argument_is_named(self, tmp_path):
        last = step_file("02-b", available_functions=MAIL, effects="{send_email: {body: y}}")
        ((code, message),) = told(tmp_path, {"01-a": FIRST, "02-b": last})
        assert code == "P14"
        assert "missing a required argument: 'to'" in message

    def test_a_misspelt_handler_is_held_against_the_functions_of_the_modules(self, tmp_path, monkeypatch):
        monkeypatch.syspath_prepend(tmp_path)
        (tmp_path / "deciders_of_a_test.py").write_text("from os.path import join\ndef judge(ctx): ...\n")
        files = {
            "playbook.yaml": "handlers: [deciders_of_a_test]\n",
            "01-a": FIRST,
            "02-b": step_file("02-b", handler="jugde"),
        }
        ((code, message),) = told(tmp_path, files)
        assert code == "P16"
        assert message.endswith("nothing is registered as 'jugde'. Did you mean 'judge'? Registered: judge.")

    def test_what_stands_beside_an_effects_function_is_told_where_it_belongs(self, tmp_path):
        effects = "[{send_email: {to: x, body: y}, into: {id: message_id}}]"
        last = step_file("02-b", available_functions=MAIL, effects=effects)
        ((code, message),) = told(tmp_path, {"01-a": FIRST, "02-b": last})
        assert code == "P06"
        assert message.endswith("'into' stands among them: {function: {into: …}}.")

    def test_a_single_value_in_place_of_a_list_is_shown_as_a_list(self, tmp_path):
        files = {"01-a": FIRST, "02-b": step_file("02-b", call="[]", next="DONE")}
        assert told(tmp_path, files) == [
            (
                "P06",
                "'next' must be a list of steps, each a name or {to, when, reason}, but this is text. "
                "Write it as [DONE].",
            )
        ]

    def test_a_template_that_is_missing_is_told_with_the_file_to_write(self, tmp_path):
        last = step_file(
            "02-b", available_functions=MAIL, effects="{send_email: {to: x, template: '02'}}", variant="{}"
        )
        ((code, message),) = told(tmp_path, {"01-a": FIRST, "02-b": last})
        assert code == "P17"
        assert "write the file '02-b.en.txt'" in message


class TestYamlInPlainWords:
    @pytest.mark.parametrize(
        ("front", "line", "hint"),
        [
            ("name: 02-b\nneeds:\n\t- a", 4, "spaces, never with tabs"),
            ("name: 02-b\ndescription: a: b", 3, "belongs in quotes"),
            ("name: 02-b\nneeds:\n  - a\n - b", 5, "begin in the same column"),
            ("name: 02-b\ndescription: *b* c", 3, "begins with * or & belongs in quotes"),
            ("name: 02-b\ndescription: @b", 3, "begins with this character belongs in quotes"),
            ("name: 02-b\nversion 1.0.0\nnext: [DONE]", 4, "followed by a colon and a space"),
            ('name: 02-b\ndescription: "b\nversion: 1.0.0\nnext: [DONE]', 3, "quotation mark is not closed"),
            ("name: 02-b\nneeds: [a\nnext: [DONE]", 4, "bracket is not closed"),
            ("name: 02-b\ncall: {lookup: {value: {{order}}}, into: x}", 3, "{{…}} in it belongs in quotes"),
            ("name: 02-b\ndescription: {{order}}", 3, "{{…}} in it belongs in quotes"),
            ("name: 02-b\nneeds: " + "[" * 3000 + "]" * 3000, 3, "levels deep at most"),
        ],
    )  # fmt: skip
    def test_what_the_parser_says_comes_with_what_to_do(self, tmp_path, front, line, hint):
        found = check(write(tmp_path / "p", {"01-a": FIRST, "02-b": f"---\n{front}\n---\nDo it.\n"}))
        assert [(one.place.line, one.code) for one in found] == [(line, "P03")]
        assert hint in found[0].message
        assert "Node" not in found[0].message


class TestWarnings:
    def test_warnings_keep_nothing_from_running_unless_somebody_is_strict(self, tmp_path, world):
        """W01 no handler in agent mode, W02 unused template, W03 snake case."""
        folder = write(
            tmp_path / "p",
            {
                "01-a_b": step_file("01-a_b", mode="agent", next="[02-b]"),
                "02-b": LAST,
                "templates/old.en.txt": "?",
            },
        )
        found = check(folder)
        assert [(one.code, one.severity) for one in found] == [
            (code, "warning") for code in ("W03", "W01", "W02")
        ]
        assert playbook_flow(folder, tools=world.tools()).name == "p"
        with pytest.raises(DocumentError):
            playbook_flow(folder, tools=world.tools(), strict=True)

    def test_a_step_that_settings_give_to_an_agent_needs_no_handler(self, tmp_path):
        folder = write(tmp_path / "p", {"01-a": FIRST, "02-b": step_file("02-b")})
        assert [one.code for one in check(folder)] == ["P16"]
        assert [one.code for one in check(folder, agents=["02-b"])] == ["W01"]
