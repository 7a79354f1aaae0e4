"""The notebook as Markdown with its figures beside it. N-99."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from markdown_it import MarkdownIt

from detent.flows.notebook.exports.markdown import fenced, notebook_markdown
from tests.flows.notebook.exports.samples import CELLS, FACTS, PICTURE, code, text


class TestMarkdown:
    def test_it_holds_cells_and_outputs(self) -> None:
        exported = notebook_markdown(CELLS, FACTS).text
        assert exported.startswith(f"# {FACTS.title}\n")
        assert exported.count(FACTS.title) == 1
        for part in (
            "\n## Data existence\n",
            "\n### Inventory\n",
            "```python\nprint('a < b')  # <script>\n```",
            "a < b\nred\n100%",
            "```text\n   price\n0    1.5\n```",
            "ZeroDivisionError: division by zero",
            "| RMSE |  | 24,310.2 |  |",
            "Run `nb-7f3a`, verified.",
        ):
            assert part in exported

    def test_the_baseline_on_the_same_rows_stands_beside_scores(self) -> None:
        metrics = {
            "test_performance": {"log_loss": 0.5, "n": 90},
            "baseline_performance": {"log_loss": 0.625, "n": 90},
        }  # fmt: skip
        exported = notebook_markdown(CELLS, replace(FACTS, metrics=metrics)).text
        assert "| Score | Folds | Held-out rows | Baseline, held-out rows | Asked |" in exported
        assert "| log loss |  | 0.5 | 0.625 |  |" in exported

    def test_figures_are_files_beside_it(self, tmp_path: Path) -> None:
        exported = notebook_markdown(CELLS, FACTS, figure_folder="run figures")
        assert list(exported.figures) == [
            "run figures/figure-01-code0002.png",
            "run figures/figure-02-code0002.svg",
        ]
        exported.write(tmp_path / "notebook.md")
        assert (tmp_path / "run figures" / "figure-01-code0002.png").read_bytes() == PICTURE
        assert "![Figure 1](run%20figures/figure-01-code0002.png)" in (tmp_path / "notebook.md").read_text()

    def test_code_with_fences_stays_code(self) -> None:
        source = 'report = """\n```python\n# no heading\n```\n"""'
        tokens = MarkdownIt().parse(notebook_markdown([text("# t"), code(source)], FACTS).text)
        assert [token.content.rstrip("\n") for token in tokens if token.type == "fence"] == [source]
        assert fenced("````", "text").startswith("`````text\n")

    def test_a_banner_stands_below_the_title(self) -> None:
        failed = replace(FACTS, verified=False, banner="**Not achieved.**")
        lines = notebook_markdown(CELLS, failed).text.split("\n\n")
        assert lines[:2] == [f"# {FACTS.title}", "**Not achieved.**"]
        assert "Run `nb-7f3a`, not verified." in lines
        assert notebook_markdown([], failed).text.split("\n\n")[:2] == lines[:2]

    def test_equal_input_gives_equal_output(self) -> None:
        assert notebook_markdown(CELLS, FACTS) == notebook_markdown(list(CELLS), replace(FACTS))
