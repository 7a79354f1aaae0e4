"""The statistics of the mailbox as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape

from detent.apps.warranty.stats import MailboxStats

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --bar: #4a7ebb; --bad: #c0504d; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p.about { color: #888; margin-top: 0; } p.warn { border-left: 4px solid var(--bad); padding-left: .8rem; }
table { border-collapse: collapse; width: 100%; } th, td { padding: .3rem .6rem; text-align: left; }
th { font-weight: 600; border-bottom: 2px solid var(--line); } td { border-bottom: 1px solid var(--line); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.bar { width: 22%; } td.bar div { height: .7rem; border-radius: 2px; background: var(--bar); }
td.bad { color: var(--bad); } code { font-size: .92em; white-space: nowrap; }
td.path code { white-space: normal; }
"""


def page(stats: MailboxStats, *, now: float, since: float | None = None, line: str | None = None) -> str:
    """The page. `line` is the rollback's line, shown while the mailbox is in legacy mode."""
    span = f"since {_when(since)}" if since is not None else "from the first run on"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Warranty mailbox</title><style>{_STYLE}</style></head><body>",
        "<h1>Warranty mailbox</h1>",
        f'<p class="about">{stats.runs:,} runs, {span}; written {_when(now)}.</p>',
    ]
    if line is not None:
        parts.append(f'<p class="warn">{escape(line)}</p>')
    parts += [_steps(stats), _paths(stats), _counts("ends", "How runs ended", stats.ends)]
    parts += [_troubles(stats), _flags(stats), _counts("legacy", "Legacy mode", stats.legacy)]
    return "\n".join(part for part in parts if part) + "\n</body></html>\n"


def _steps(stats: MailboxStats) -> str:
    rows = []
    for step in stats.steps:
        failed = sum(step.failures.values())
        rows.append(
            [
                ("", f"<code>{escape(step.step)}</code>"), ("n", f"{step.visits:,}"), ("n", f"{step.runs:,}"),
                ("n", f"{step.share:.1%}"),
                ("bar", f'<div style="width:{min(100.0, step.share * 100):.1f}%"></div>'),
                ("n bad" if failed else "n", f"{failed:,}"), ("", _reasons(step.failures)),
                ("n", f"{sum(step.fallbacks.values()):,}"), ("n", _ms(step.p50_ms)), ("n", _ms(step.p95_ms)),
            ]
        )  # fmt: skip
    heads = (
        "step", "#visits", "#runs", "#share", "", "#failed", "why", "#fallbacks", "#p50 ms", "#p95 ms"
    )  # fmt: skip
    return _table("steps", "Steps", heads, rows)


def _paths(stats: MailboxStats) -> str:
    rows = [
        [("path", f"<code>{escape(path)}</code>"), ("n", f"{runs:,}")] for path, runs in stats.paths.items()
    ]
    return _table("paths", "Paths", ("path", "#runs"), rows)


def _troubles(stats: MailboxStats) -> str:
    rows = [
        [
            ("", f"<code>{escape(trouble.step)}</code>"), ("", escape(trouble.reason)),
            ("n", f"{trouble.count:,}"), ("", f"<code>{escape(trouble.run)}</code>"),
        ]
        for trouble in stats.troubles
    ]  # fmt: skip
    return _table("troubles", "Where runs fail", ("step", "reason", "#runs", "the latest"), rows)


def _flags(stats: MailboxStats) -> str:
    rows = [
        [("", escape(flagged.flag)), ("n", f"{flagged.runs:,}"), ("", f"<code>{escape(flagged.run)}</code>")]
        for flagged in stats.flags
    ]
    return _table("flags", "Flagged", ("flag", "#runs", "the latest"), rows)


def _counts(name: str, title: str, counts: Mapping[str, int]) -> str:
    rows = [[("", escape(end)), ("n", f"{number:,}")] for end, number in counts.items()]
    return _table(name, title, ("end", "#runs"), rows)


def _table(name: str, title: str, heads: Sequence[str], rows: Iterable[Sequence[tuple[str, str]]]) -> str:
    body = "\n".join(f"<tr>{''.join(_cell(*cell) for cell in row)}</tr>" for row in rows)
    if not body:
        return ""
    top = "".join(
        f'<th class="n">{escape(head[1:])}</th>' if head.startswith("#") else f"<th>{escape(head)}</th>"
        for head in heads
    )
    return (
        f'<h2>{escape(title)}</h2>\n<table id="{name}"><thead><tr>{top}</tr></thead><tbody>\n{body}\n'
        "</tbody></table>"
    )


def _cell(kind: str, text: str) -> str:
    return f'<td class="{kind}">{text}</td>' if kind else f"<td>{text}</td>"


def _reasons(counts: Mapping[str, int]) -> str:
    return escape(", ".join(f"{reason} {number:,}" for reason, number in counts.items()))


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
