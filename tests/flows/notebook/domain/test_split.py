"""Rows that belong together are held out together, where names or the sentence say that they do (N-113)."""

import numpy as np
import pandas as pd
import pytest

from detent.flows.notebook.domain.groups import columns_with_constants, share_is_possible
from detent.flows.notebook.domain.problem import ProblemError
from detent.flows.notebook.domain.split import choose_split
from tests.flows.notebook.domain.made_tables import made_table


def choose(problem, description, *, task="regression", option=None):
    table = made_table(description)
    return choose_split(problem, table, "y", task, option)


class TestEvenSplits:
    def test_numbers_are_shuffled_and_classes_kept_in_proportion(self):
        assert choose("Predict y", "x:num y:num").split.kind == "shuffled"
        assert choose("Predict y", "x:num y:cat", task="classification").split.kind == "stratified"

    @pytest.mark.parametrize(
        "description",
        [
            "patient_id:key x:num y:num",
            "customers:int x:num y:num",
            "customer_age:few(40) y:num",
            "type_id:few(40) x:num y:num",
            "paid:few(40) x:num y:num",
            "subject_note:text x:num y:num",
            "account:num x:few(4) y:num",
        ],
        ids=["all different", "a count", "a quality", "a kind", "paid", "a note", "an amount"],
    )
    def test_a_name_that_only_looks_like_an_id_makes_no_groups(self, description):
        assert choose("Predict y", description).split.kind == "shuffled"


class TestGroups:
    @pytest.mark.parametrize(
        "name",
        [
            "patient",
            "patient_id",
            "PatientID",
            "customerNo",
            "subject",
            "Household",
            "id",
            "store_id",
            "user",
        ],
    )
    def test_a_repeating_column_named_like_an_id(self, name):
        choice = choose("Predict y", f"{name}:few(40) x:num y:num")
        assert (choice.split.kind, choice.split.column) == ("group", name)
        assert choice.groups == (name,)

    @pytest.mark.parametrize(
        "problem",
        [
            "Predict y for clinics that are not in the table",
            "Predict y for clinics not in this table",
            "Predict y for new clinics",
            "Predict y in unseen clinics",
            "Predict y for other clinics",
            "Predict y at a clinic we have not visited yet",
            "Predict y for clinics that have not been measured",
            "Predict y for clinics not measured yet",
            "Predict y for clinics outside the table",
            "It should work on a new clinic. Predict y.",
            "Predict y for clinics which aren't part of our data",
        ],
    )
    @pytest.mark.parametrize("name", ["clinic", "clinic_name", "ClinicId"])
    def test_only_the_sentence_says_so(self, problem, name):
        choice = choose(problem, f"{name}:cat(20) x:num y:num")
        assert (choice.split.kind, choice.split.column) == ("group", name)

    @pytest.mark.parametrize(
        "problem",
        [
            "Predict y for each clinic",
            "Predict y by clinic and x",
            "Predict y for clinics where x is not known in advance",
            "Predict y for clinics that do not treat children",
            "Predict y with a new model for clinics",
        ],
    )
    def test_other_words_about_a_column_say_nothing_of_new_ones(self, problem):
        assert choose(problem, "clinic:cat(20) x:num y:num").split.kind == "shuffled"

    def test_the_sentence_goes_before_the_name(self):
        choice = choose("Predict y for new clinics", "patient_id:few(60) clinic:cat(20) x:num y:num")
        assert choice.split.column == "clinic"
        assert choice.groups == ("clinic", "patient_id")
        assert "patient_id" in choice.warnings[0]

    def test_households_keep_their_persons_together(self):
        table = made_table("x:num y:num")
        table["person"] = np.arange(len(table)) // 2
        table["household"] = np.arange(len(table)) // 8
        choice = choose_split("Predict y", table, "y", "regression")
        assert choice.split.column == "household"
        assert choice.warnings == ()

    def test_groups_too_large_to_hold_out_are_told(self):
        table = made_table("x:num y:num")
        table["store_id"] = np.where(np.arange(len(table)) % 2, 1, 2)
        choice = choose_split("Predict y", table, "y", "regression")
        assert choice.split.kind == "shuffled"
        assert "2 groups are too large" in choice.warnings[0]

    def test_a_column_within_which_others_are_constant_is_told(self):
        table = made_table("x:num y:num")
        town = np.arange(len(table)) % 20
        table["town"] = [f"town{n}" for n in town]
        table["height"] = town * 7 % 11 + 0.5
        table["coast"] = town % 3 == 0
        assert columns_with_constants(table, "y") == {"town": ("height", "coast")}
        choice = choose_split("Predict y", table, "y", "regression")
        assert choice.split.kind == "shuffled"
        assert "group:town" in choice.warnings[0]

    def test_a_second_name_of_the_same_thing_is_no_constant(self):
        table = made_table("x:num y:num zone:cat(6)")
        table["zone_code"] = table["zone"].str[-1].astype(int)
        table["zone_title"] = table["zone"].str.upper()
        assert columns_with_constants(table, "y") == {}


class TestTime:
    @pytest.mark.parametrize(
        "problem",
        [
            "Predict y in later months",
            "Train on the past and predict y",
            "Predict y for future dates",
            "Predict y, tested on the most recent rows",
            "Predict y for the coming weeks",
        ],
    )
    def test_a_problem_about_later_rows_is_split_by_its_date(self, problem):
        choice = choose(problem, "sold:date x:num y:num")
        assert (choice.split.kind, choice.split.column) == ("time", "sold")
        assert choice.dates == ("sold",)

    def test_a_date_alone_changes_nothing(self):
        choice = choose("Predict y", "sold:date x:num y:num")
        assert (choice.split.kind, choice.dates) == ("shuffled", ("sold",))

    def test_a_year_will_do_and_no_time_at_all_is_told(self):
        assert choose("Predict y in later years", "year:few(9) x:num y:num").split.column == "year"
        choice = choose("Predict y in later years", "x:num z:num y:num")
        assert choice.split.kind == "shuffled"
        assert len(choice.warnings) == 1

    def test_the_date_that_the_problem_names_is_taken(self):
        choice = choose("Predict y for later dates of sale", "listed:date sale:date y:num")
        assert choice.split.column == "sale"


class TestOptions:
    def test_each_is_followed(self):
        description = "patient_id:few(40) sold:date zone:cat(20) y:num"
        assert choose("Predict y", description, option="shuffled").split.kind == "shuffled"
        assert choose("Predict y", description, option="group:zone").split.column == "zone"
        assert choose("Predict y", description, option="time:sold").split.kind == "time"
        assert choose("Predict y", description, option="auto").split.column == "patient_id"

    def test_a_group_that_was_asked_for_stands_first(self):
        choice = choose("Predict y", "patient_id:few(40) zone:cat(20) y:num", option="group:zone")
        assert choice.groups == ("zone", "patient_id")

    @pytest.mark.parametrize(
        "option", ["random", "group", "group:", "group:zon", "time:zone", "group:y", "group:one", "group:two"]
    )
    def test_what_cannot_be_followed_is_refused(self, option):
        with pytest.raises(ProblemError):
            choose("Predict y", "zone:cat(20) one:one two:bin y:num", option=option)


def test_a_share_is_possible_where_whole_groups_come_near_it():
    assert share_is_possible(pd.Series(list("aabbccddee")), 0.2)
    assert not share_is_possible(pd.Series(list("aaaaaabbbb")), 0.2)
    assert share_is_possible(pd.Series(["a"] * 80 + ["b"] * 20), 0.2)
