"""Values written into code."""

from __future__ import annotations

import ast

import pytest

from detent.flows.notebook.recipes.code_text import cell, fill, literal
from tests.flows.notebook.recipes.tables import ODD_NAMES


class TestLiterals:
    """N-111: column names are data, whatever they look like."""

    @pytest.mark.parametrize("name", [*ODD_NAMES, "", "\u2028", "\ud800", "\x00", '"""', "\\"])
    def test_any_name_comes_back_as_it_was(self, name):
        assert ast.literal_eval(literal(name)) == name

    def test_a_long_text_is_written_over_several_lines(self):
        text = "How much is a house, and why? " * 30
        assert "\n" in literal(text)
        assert max(map(len, literal(text).splitlines())) <= 110
        assert ast.literal_eval(literal(text)) == text

    def test_dictionaries_keep_their_order(self):
        assert list(ast.literal_eval(literal({"z": 1, "a": 2}))) == ["z", "a"]


class TestSlots:
    def test_what_fills_a_slot_is_not_searched_for_slots(self):
        code = fill("name = <<NAME>>\nother = <<OTHER>>", {"NAME": literal("<<OTHER>>"), "OTHER": "2"})
        assert code == "name = '<<OTHER>>'\nother = 2"

    def test_a_slot_without_code_is_an_error(self):
        with pytest.raises(KeyError, match="NAME"):
            fill("<<NAME>>", {})

    def test_pieces_of_a_cell_stand_apart_and_empty_ones_vanish(self):
        assert cell("\na = 1\n", "", "b = 2\n") == "a = 1\n\n\nb = 2"
