"""The smallest useful typer program, the yardstick for the time of ``detent --help``."""

import typer

app = typer.Typer()


@app.command()
def hello(name: str = "you") -> None:
    """Greet someone."""
    typer.echo(f"Hello {name}")


if __name__ == "__main__":
    app()
