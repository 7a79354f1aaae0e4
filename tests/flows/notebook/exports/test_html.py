"""The notebook as one page: readable without a network, and with nothing of an output's own markup. N-99."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from detent.flows.notebook.exports.cell import Limit, NotebookCell
from detent.flows.notebook.exports.html import notebook_page
from detent.flows.notebook.exports.html_table import plain_table
from tests.flows.notebook.exports.samples import CELLS, FACTS, FRAME, PICTURE, PIXEL, code, shown, text

TAGS = {
    "a", "blockquote", "body", "br", "caption", "code", "details", "div", "em", "figure", "h1", "h2", "h3",
    "h4", "h5", "h6", "head", "header", "hr", "html", "img", "li", "main", "meta", "nav", "ol", "p", "pre",
    "s", "section", "span", "strong", "style", "summary", "table", "tbody", "td", "tfoot", "th", "thead",
    "title", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {
    "alt", "aria-hidden", "aria-label", "charset", "class", "colspan", "content", "href", "http-equiv", "id",
    "lang", "name", "rel", "role", "rowspan", "scope", "src", "start", "tabindex", "title",
}  # fmt: skip
VOID = frozenset({"meta", "img", "br", "hr"})


class Page(HTMLParser):
    """Tags of a page as a browser would read them."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        """The attributes of each tag of a name."""
        return [attributes for name, attributes in self.tags if name == tag]


def page_of(*cells: NotebookCell, folder: Path | None = None) -> Page:
    """A page, each of its tags and attributes one of ours, and no address one that is fetched."""
    page = Page(notebook_page(cells, FACTS, folder=folder))
    for tag, attributes in page.tags:
        assert attributes.keys() <= ATTRIBUTES, (tag, attributes)
    for picture in page.all("img"):
        assert re.fullmatch(r"data:image/(png|jpeg|gif|webp|svg\+xml);base64,[\w+/=]+", picture["src"])
    for link in page.all("a"):
        assert re.match(r"#|https?://|mailto:|[^:]*$", link["href"]), link
    return page


class TestPage:
    def test_it_shows_cells_and_outputs(self) -> None:
        page = page_of(*CELLS)
        for part in (
            "bold",
            "数",
            "print('a < b')",
            "100%",
            "UserWarning: <careful>",
            "1.5",
            "ZeroDivisionError",
        ):
            assert part in page.text
        assert "\x1b" not in page.text
        assert "90%" not in page.text  # the bar's last state alone
        assert len(page.all("img")) == 2

    def test_markup_of_cells_and_outputs_is_text(self) -> None:
        page = page_of(*CELLS)
        assert "<b onmouseover=alert(4)>raw</b>" in page.text
        assert "<img src=x onerror=alert(3)>" in page.text
        assert "alert(2)" not in page.text

    def test_the_policy_allows_its_own_style_and_embedded_pictures_alone(self) -> None:
        content = notebook_page(CELLS, FACTS)
        style = re.search(r"<style>(.*?)</style>", content, re.DOTALL)
        assert style is not None
        digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
        policy = next(meta["content"] for meta in Page(content).all("meta") if "http-equiv" in meta)
        assert policy == (
            f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        )
        assert "@import" not in style[1]
        assert "url(" not in style[1]

    def test_stages_and_steps_are_listed(self) -> None:
        page = page_of(*CELLS)
        anchors = [link["href"][1:] for link in page.all("a")]
        assert anchors == ["data-existence", "inventory", "charts", "model"] * 2
        assert {heading["id"] for tag in ("h2", "h3") for heading in page.all(tag)} == set(anchors)

    def test_equal_headings_have_anchors_of_their_own(self) -> None:
        page = page_of(text("## Again"), text("## Again", "text0002"), text("## ?!", "text0003"))
        assert [heading["id"] for heading in page.all("h2")] == ["again", "again-2", "part"]

    def test_the_title_stands_there_once(self) -> None:
        page = page_of(*CELLS)
        assert len(page.all("h1")) == 1
        assert page.text.count(FACTS.title) == 2  # in the head, and above the notebook

    def test_figures_are_named_by_their_step(self) -> None:
        assert [picture["alt"] for picture in page_of(*CELLS).all("img")] == [
            "Figure 1: Charts",
            "Figure 2: Charts",
        ]

    def test_facts_and_banner(self) -> None:
        page = page_of(*CELLS)
        for part in ("nb-7f3a", "verified", "24,310.2", "586"):
            assert part in page.text
        assert "not verified" not in page.text
        assert "nan" not in page.text
        failed = Page(notebook_page(CELLS, replace(FACTS, verified=False, banner="**Not achieved**")))
        assert "not verified" in failed.text
        assert "Not achieved" in failed.text

    def test_scores_stand_beside_what_was_asked_of_them(self) -> None:
        limits = (Limit("rmse", "< 25000", True), Limit("r2", "> 0.9", False), Limit("mae", "< 9"))
        metrics = {"cv_metrics": {"rmse": 25500.0, "n": 2344}, **FACTS.metrics, "retry_rate": 1.5}
        page = notebook_page((), replace(FACTS, metrics=metrics, limits=limits))
        rows = [re.sub("<[^>]+>", "|", row) for row in re.findall("<tr>(.*?)</tr>", page)]
        assert [[part.strip() for part in row.split("|") if part.strip()] for row in rows[:6]] == [
            ["Score", "Folds", "Held-out rows", "Asked"],
            ["RMSE", "25,500", "24,310.2", "&lt; 25000", "met"],
            ["R²", "0.8612", "&gt; 0.9", "not met"],
            ["MAE", "&lt; 9"],
            ["rows", "2344", "586"],
            ["gap", "–"],
        ]
        assert "Attempts for each behavior" in page

    def test_the_baseline_on_the_same_rows_and_the_positive_class_stand_beside_scores(self) -> None:
        metrics = {
            "test_performance": {"f1": 0.5, "balanced_accuracy": 0.62, "n": 90},
            "baseline_performance": {"f1": 0.0, "balanced_accuracy": 0.5, "n": 90},
            "positive_class": "<yes>",
        }
        page = notebook_page((), replace(FACTS, metrics=metrics))
        rows = [re.sub("<[^>]+>", "|", row) for row in re.findall("<tr>(.*?)</tr>", page)]
        assert [[part.strip() for part in row.split("|") if part.strip()] for row in rows] == [
            ["Score", "Folds", "Held-out rows", "Baseline, held-out rows", "Asked"],
            ["F1 of class &lt;yes&gt;", "0.5", "0"],
            ["balanced accuracy", "0.62", "0.5"],
            ["rows", "90"],
        ]

    def test_long_code_is_folded_so_that_results_stay_in_view(self) -> None:
        short, long = "\n".join(["x = 1"] * 24), "\n".join(["x = 1"] * 25)
        assert page_of(code(short)).text.count("Code, ") == 0
        page = page_of(code(long))
        assert "Code, 25 lines" in page.text
        assert page.text.count("x = 1") == 25

    def test_equal_input_gives_an_equal_page(self) -> None:
        assert notebook_page(CELLS, FACTS) == notebook_page(list(CELLS), replace(FACTS))

    def test_an_empty_notebook_is_a_page(self) -> None:
        assert page_of().all("nav") == []


class TestHostileInput:
    @pytest.mark.parametrize(
        "source",
        [
            "<script>alert(1)</script>",
            "<img src=x onerror=alert(1)>",
            "[a](javascript:alert(1))",
            "[a](JaVaScRiPt&colon;alert(1))",
            "[a](data:text/html,<script>alert(1)</script>)",
            "[a](vbscript:x)",
            "<javascript:alert(1)>",
            "[a]: javascript:alert(1)\n\n[a]",
            "![x](http://evil.example/pixel.png)",
            "![x](//evil.example/pixel.png)",
            "![x](data:image/svg+xml;base64,AAAA)",
            "[a](//evil.example)",
            '[a](https://example.org "onclick=alert(1)")',
            '[a](https://example.org/"onclick="alert(1))',
            "## <iframe src=x>",
            '## "><script>alert(1)</script>',
            "```\n</code></pre><script>alert(1)</script>\n```",
            "| a |\n| - |\n| <script>alert(1)</script> |",
            "</div></main><script>alert(1)</script>",
            "<!-- x --><style>body{display:none}</style>",
            "&lt;script&gt;",
            "x" * 100_000,
            "> " * 500 + "deep",
            "[" * 5000,
        ],
    )
    def test_markdown(self, source: str) -> None:
        page = page_of(text(source))
        assert page.all("script") == []
        assert page.all("img") == []

    @pytest.mark.parametrize(
        "markup",
        [
            "<table><tr><td>1<script>alert(1)</script></table>",
            "<table onclick=alert(1)><tr style='x'><td colspan=3 class=x>1</td></tr></table>",
            "<table><tr><td><table><tr><td>inner</td></tr></table>after</td><td>1</td></tr></table>",
            "<table><td>no row<td>1",
            "<table><tr><td><img src=x onerror=alert(1)>1",
            "<table><tr><td>&lt;script&gt;alert(1)&lt;/script&gt; 1",
            "</div></section></main><table><tr><td>1</td></tr></table></body></html>",
            "<table><thead><tr><th colspan='99999999999'>1</th></tr></thead></table>",
            "<table><caption>1 <b>cap</b></caption></table>",
            "<table><tr><td><svg><script>alert(1)</script></svg>1</td></tr></table>",
            "<style>*{}</style><table><tr><td>1</td></tr></table><style>unclosed",
        ],
    )
    def test_tables(self, markup: str) -> None:
        page = page_of(code("x", shown({"text/html": markup, "text/plain": "plain"})))
        assert "1" in page.text
        assert len(page.all("table")) == 3  # with those of the scores and of what else was measured

    @pytest.mark.parametrize(
        "markup",
        [
            "<script>alert(1)</script>",
            "<b>bold</b>",
            "<iframe src=x></iframe>",
            "<script><table></script>",
            "<tr>",
        ],
    )
    def test_markup_without_a_table_is_replaced_by_the_plain_form(self, markup: str) -> None:
        page = page_of(code("x", shown({"text/html": markup, "text/plain": "the plain form"})))
        assert "the plain form" in page.text
        assert "bold" not in page.text

    @pytest.mark.parametrize(
        "data",
        [
            {"image/png": '"><script>alert(1)</script>'},
            {"image/png": base64.b64encode(b"<script>alert(1)</script>").decode()},
            {"image/jpeg": PIXEL},
            {"image/svg+xml": "no picture"},
            {"application/javascript": "alert(1)"},
            {"text/latex": "<script>"},
        ],
    )
    def test_pictures_that_are_none_are_not_shown(self, data: dict[str, str]) -> None:
        page = page_of(code("x", shown({**data, "text/plain": "plain"})))
        assert page.all("img") == []
        assert "plain" in page.text

    def test_an_svg_is_a_picture_in_which_no_script_runs(self) -> None:
        page = page_of(code("x", shown({"image/svg+xml": "<svg onload=alert(1)></svg>"})))
        assert page.all("img")[0]["src"].startswith("data:image/svg+xml;base64,")

    def test_markdown_of_an_output_is_tamed_as_well(self) -> None:
        page = page_of(
            code("x", shown({"text/markdown": "**b** <script>1</script> ![x](http://e.example/x.png)"}))
        )
        assert "[picture: x]" in page.text

    def test_source_code_is_text(self) -> None:
        page = page_of(code("x = '</code></pre><script>alert(1)</script>'\n" + "é" * 10))
        assert "<script>alert(1)</script>" in page.text


class TestPictures:
    """Pictures that text cells name are embedded from the work folder, and from nowhere else."""

    def test_a_picture_in_the_folder_is_embedded(self, tmp_path: Path) -> None:
        (tmp_path / "outputs").mkdir()
        (tmp_path / "outputs" / "a b.png").write_bytes(PICTURE)
        page = page_of(text("![chart](outputs/a%20b.png)"), folder=tmp_path)
        assert page.all("img")[0]["src"].endswith(PIXEL)

    @pytest.mark.parametrize(
        "path", ["../secret.png", "/etc/passwd", "text.png", "missing.png", "", "link.png"]
    )
    def test_anything_else_is_named_only(self, tmp_path: Path, path: str) -> None:
        work = tmp_path / "work"
        work.mkdir()
        (tmp_path / "secret.png").write_bytes(PICTURE)
        (work / "text.png").write_text("no picture")
        (work / "link.png").symlink_to(tmp_path / "secret.png")
        page = page_of(text(f"![chart]({path})"), folder=work)
        assert page.all("img") == []
        assert "[picture: chart]" in page.text


class TestTables:
    def test_a_table_is_rebuilt_from_its_texts(self) -> None:
        assert plain_table(FRAME) == (
            "<table><thead><tr><th></th><th>price &lt; 1</th></tr></thead>"
            "<tbody><tr><th>0</th><td>1.5</td></tr></tbody></table><p>1 rows × 1 columns</p>"
        )

    def test_spans_are_kept(self) -> None:
        table = plain_table(
            "<table><tr><th colspan=2 rowspan='3' width=9>a</th><td colspan=x>b</td></tr></table>"
        )
        assert table == '<table><tr><th colspan="2" rowspan="3">a</th><td>b</td></tr></table>'

    def test_of_a_table_in_a_cell_the_texts_are_kept(self) -> None:
        markup = "<table><tr><td><table><tr><td>in</td></tr></table>out</td><td>next</td></tr></table>"
        assert plain_table(markup) == "<table><tr><td>inout</td><td>next</td></tr></table>"
