"""Commands about model files: `models list`, `models pull`, `models path`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Annotated, Any

import typer

from detent.cli.options import Options, takes

SECTION = "This installation"

models = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="List and fetch model files, for agents without a key.",
)


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.add_typer(models, name="models", rich_help_panel=SECTION)


@models.command("list")
@takes("json")
def list_models(options: Options) -> None:
    """List the model files that can be fetched by name."""
    from detent.adapters.models.model_files import KNOWN, ModelFileMissing, models_folder, path
    from detent.cli.output import say, size

    rows: list[dict[str, Any]] = []
    damaged: set[str] = set()
    for model in KNOWN.values():
        place: str | None = None
        try:
            place = str(path(model.name))
        except ModelFileMissing as missing:
            damaged |= {model.name} if missing.file.exists() else set()
        rows.append(
            {
                "name": model.name, "title": model.title, "bytes": model.bytes, "sha256": model.sha256,
                "licence": model.licence, "here": place is not None, "path": place,
                "good_for": model.good_for,
            }
        )  # fmt: skip

    def here(row: Mapping[str, Any]) -> str:
        return "downloaded" if row["here"] else "damaged" if row["name"] in damaged else "not downloaded"

    options.print_rows(
        rows,
        {
            "MODEL": "name",
            "SIZE": lambda row: size(row["bytes"]),
            "LICENCE": "licence",
            "HERE": here,
            "GOOD FOR": "good_for",
        },
        right=(1,),
    )
    if options.as_table and not any(row["here"] for row in rows):
        say(f"None is in {models_folder()} yet: detent models pull NAME")


Name = Annotated[str, typer.Argument(metavar="NAME", help="A name from `detent models list`.")]


@models.command()
def pull(name: Name) -> int:
    """Fetch a model file.

    Resumed where it broke off, kept only when its checksum is right.
    """
    from detent.adapters.models.model_files import known
    from detent.adapters.models.model_files import pull as fetch
    from detent.cli.output import say, warn

    model = known(name)
    try:
        with Transfer(model.title) as shown:
            file = fetch(name, progress=shown.progress, tell=shown.tell)
    except KeyboardInterrupt:
        warn(f"Stopped. What has been fetched is kept; go on with: detent models pull {name}")
        return 130
    say(str(file))
    return 0


@models.command("path")
def path_of(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A name from `detent models list`, or a file.")
    ],
) -> None:
    """Print where a model file is."""
    from detent.adapters.models.model_files import path
    from detent.cli.output import say

    say(str(path(name)))


class Transfer:
    """Shows download progress: a bar on a terminal, an occasional line elsewhere."""

    EVERY = 5.0
    """Seconds between lines without a terminal."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._bar: Any = None
        self._task: Any = None
        self._said = 0.0
        self._last = -1

    def __enter__(self) -> Transfer:
        from detent.cli.output import clean, is_terminal

        if is_terminal():
            from rich.markup import escape
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            self._bar = Progress(
                "{task.description}",
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
            )
            self._task = self._bar.add_task(escape(clean(self.title)), total=None)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def progress(self, done: int, total: int) -> None:
        """Show how many bytes have arrived."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)
            return
        now = time.monotonic()
        if done == self._last or (done < total and now - self._said < self.EVERY):
            return
        self._said, self._last = now, done
        from detent.cli.output import size, warn

        warn(f"{self.title}: {size(done)} of {size(total)}")

    def tell(self, sentence: str) -> None:
        """Print a remark, such as a source that failed."""
        from detent.cli.output import clean, warn

        if self._bar is not None:
            self._bar.console.print(clean(sentence), markup=False, highlight=False)
        else:
            warn(clean(sentence))
