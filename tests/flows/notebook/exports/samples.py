"""A small notebook with every kind of output, and hostile ones."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from detent.flows.notebook.exports.cell import NotebookCell, NotebookFacts

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert("svg")</script><circle r="1"/></svg>'
FRAME = (
    "<div><style scoped>.dataframe tbody tr th { vertical-align: top; }</style>"
    '<table border="1" class="dataframe"><thead><tr style="text-align: right;"><th></th>'
    "<th>price &lt; 1</th></tr></thead><tbody><tr><th>0</th>"
    '<td onclick="alert(1)">1.5<script>alert(2)</script></td></tr></tbody></table>'
    "<p>1 rows × 1 columns</p></div>"
)

FACTS = NotebookFacts(
    title="House <prices> & more",
    run_id="nb-7f3a",
    problem="Predict SalePrice, RMSE < 25000.\n<img src=x onerror=alert(3)>",
    verified=True,
    metrics={
        "test_performance": {"rmse": 24310.25, "r2": 0.8612, "n": 586},
        "gap": float("nan"),
        "pcs": True,
    },
)


def shown(data: Mapping[str, Any], kind: str = "display_data") -> dict[str, Any]:
    """A result of a cell."""
    output: dict[str, Any] = {"output_type": kind, "data": dict(data), "metadata": {}}
    return {**output, "execution_count": 1} if kind == "execute_result" else output


def code(source: str, *outputs: Mapping[str, Any], cell_id: str = "code0001") -> NotebookCell:
    """A code cell."""
    return NotebookCell(cell_id, "code", source, outputs, 1, {"detent": {"stage_id": "one", "iteration": 1}})


def text(source: str, cell_id: str = "text0001") -> NotebookCell:
    """A Markdown cell."""
    return NotebookCell(cell_id, "markdown", source)


CELLS = (
    text(f"# {FACTS.title}", "title000"),
    text("## Data existence", "stage001"),
    text("### Inventory", "step0001"),
    text("A **bold** word, <b onmouseover=alert(4)>raw</b> and 数.", "text0001"),
    code(
        "print('a < b')  # <script>",
        {"output_type": "stream", "name": "stdout", "text": "a < b\n\x1b[31mred\x1b[0m\n 10%\r 90%\r100%\n"},
        {"output_type": "stream", "name": "stderr", "text": "UserWarning: <careful>\n"},
        shown({"text/html": FRAME, "text/plain": "   price\n0    1.5"}, "execute_result"),
        cell_id="code0001",
    ),
    text("### Charts", "step0002"),
    code(
        "plt.show()",
        shown({"image/png": PIXEL, "text/plain": "<Figure size 1x1>"}),
        shown({"image/svg+xml": SVG, "text/plain": "<svg>"}),
        cell_id="code0002",
    ),
    text("## Model\n\nText of the stage.", "stage002"),
    code(
        "1 / 0",
        {
            "output_type": "error",
            "ename": "ZeroDivisionError",
            "evalue": "division by zero",
            "traceback": ["\x1b[0;31m----\x1b[0m", "ZeroDivisionError: division by zero"],
        },
        cell_id="code0003",
    ),
)

PICTURE = base64.b64decode(PIXEL)
