"""A notebook on a terminal: the question which column is meant, the block below the lines. N-100, N-111."""

from __future__ import annotations

from tests.flows.coding.terminal.pseudo_terminal import Terminal

QUESTION = "Which column is to be predicted?"


def test_a_person_at_a_terminal_is_asked_and_sees_where_the_run_stands(project):
    rows = "".join(f"{i},{2 * i + i % 3},{3 * i + i % 5}\n" for i in range(40))
    (project.folder / "houses.csv").write_text("a,house_price,flat_price\n" + rows)
    words = (
        "run", "notebook", "--problem", "price, RMSE < 50", "--file", "houses.csv", "--id", "asked",
        "--transitions", "3",
    )  # fmt: skip
    with Terminal(project.folder, *words, columns=120) as terminal:
        asked = terminal.until(QUESTION, "Its number: ")
        terminal.line("3", "Its number: ")  # there are two columns, and a number is asked for
        terminal.line("two", "Its number: ")
        terminal.line("2", "STAGE 1/8", "BEHAVIOR_RUNNING")
        assert terminal.ended() == 0
        shown, raw = terminal.text, terminal.raw
    second = next(line.split()[1] for line in asked.splitlines() if line.split()[:1] == ["2"])
    assert project.detent("notebook", "show", "asked", "--json").json["target"] == second
    for part in (
        "stages    ░",
        "steps     ░",
        "behavior  data_collection_inventory_b1",
        "▸ data_collection_",
    ):
        assert part in shown
    assert b"\x1b[2K" in raw  # drawn again in place
