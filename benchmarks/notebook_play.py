"""Plays the recipes of the notebook flow in one process, up to the final model."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.protocol import main

STAGES = 5


def play(param: dict[str, Any]) -> dict[str, Any]:
    """Play them on a table, and keep what the model says of the hold-out."""
    import matplotlib as mpl
    import numpy as np

    from detent.flows.notebook.domain.catalogue_data import catalogue
    from detent.flows.notebook.domain.problem_reader import read_problem
    from detent.flows.notebook.recipes.cookbook import recipe_for
    from detent.flows.notebook.recipes.recipe import Kitchen, RecipeSettings

    mpl.use("Agg")
    warnings.filterwarnings("ignore")
    kitchen = Kitchen(
        read_problem(param["problem"], [Path(param["csv"])]), RecipeSettings(seed=param["seed"])
    )
    names: dict[str, Any] = {"__name__": "__main__"}
    times: dict[str, float] = {}
    with contextlib.chdir(param["work"]), contextlib.redirect_stdout(io.StringIO()):
        for stage in catalogue()[:STAGES]:
            for step in stage.steps:
                recipe = recipe_for(step.id, kitchen, [], [])
                assert recipe is not None, step.id
                begin = time.perf_counter()
                exec(compile(recipe.code, step.id, "exec"), names)
                times[step.id] = time.perf_counter() - begin
    X, y, model = names["X_test"], names["y_test"], names["final_model"]
    labels = [str(each) for each in getattr(model, "classes_", [])]
    predicted = model.predict_proba(X) if param["metric"] in ("auc", "log_loss") else model.predict(X)
    np.savez(
        Path(param["out"]) / "rows.npz",
        train=names["X_train"].index.to_numpy(), test=X.index.to_numpy(), labels=np.array(labels),
        truth=y.to_numpy().astype(str if labels else float),
        detent=np.asarray(predicted).astype(str if param["metric"] == "accuracy" else float),
    )  # fmt: skip
    return {
        "chosen": names["best_params"]["model"],
        "seconds": sum(times.values()),
        "modelling": sum(times[name] for name in ("method_integration", "model_training_tuning")),
        "removed": list(names["leakage_report"]["removed"]),
        "cv": names["cv_metrics"],
    }


if __name__ == "__main__":
    main({"play": play})
