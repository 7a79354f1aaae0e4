"""Actions of this project. The decorator only marks a function; `plugins` in detent.yaml names this file."""

from collections import Counter
from typing import TypedDict

from detent.workflow import action


class Words(TypedDict):
    count: int
    commonest: str | None


@action("count_words", intent="Say how many words a text has and which of them is used most.")
def count_words(text: str) -> Words:
    words = [word.strip(".,;:!?").lower() for word in text.split()]
    ranked = Counter(word for word in words if len(word) > 3).most_common(1)
    return {"count": len(words), "commonest": ranked[0][0] if ranked else None}


@action("week_report", intent="Name every note of the week, how long it is and what it is about.")
def week_report(files: list[str], notes: list[list[dict[str, object]]]) -> dict[str, str]:
    lines = [
        f"- {file}: {words['count']} words, mostly about {words['commonest'] or 'nothing'}"
        for file, (_, words) in zip(files, notes, strict=True)
    ]
    return {"text": "\n".join([f"# The week in {len(files)} notes", "", *lines, ""])}
