"""Columns line up whatever the cells are written in."""

import pytest

from detent.cli.output import cut, table, width

EMOJI = ["👍🏽", "1️⃣", "❤️", "🇩🇪", "☎️", "日"]


@pytest.mark.parametrize("text", EMOJI)
def test_an_emoji_takes_the_two_columns_a_terminal_gives_it(text):
    assert width(text) == 2


def test_columns_of_a_table_line_up_behind_emoji(capsys):
    table(("NAME", "NEXT"), [(f"{text} x", "|") for text in EMOJI])
    heads, *rows = capsys.readouterr().out.splitlines()
    assert {width(row[: row.index("|")]) for row in rows} == {heads.index("NEXT")}


def test_a_cell_is_cut_before_an_emoji_that_does_not_fit():
    assert cut("ab👍🏽cd", 4) == "ab…"
    assert cut("ab👍🏽cd", 5) == "ab👍🏽…"
