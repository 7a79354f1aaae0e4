"""The recipes of stage 7's first half: refits on other rows, and with other settings."""

from __future__ import annotations

from detent.flows.notebook.recipes.code_text import cell, fill, literal
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.flows.notebook.recipes.retries import ATTEMPT, attempted

# -- data_perturbation_testing ------------------------------------------------------------------------------


def data_perturbation_testing(kitchen: Kitchen) -> Recipe:
    """Refit the final settings on perturbed rows, and score all refits on the same rows."""
    slots = {
        # A retry works on fewer rows, in one process.
        "CELLS": {1: "STUDY_CELLS", 2: "STUDY_CELLS // 4"}.get(kitchen.iteration, "STUDY_CELLS // 20"),
        "JOBS": "jobs_for(X_rest)" if kitchen.iteration == 1 else "1",
    }
    return Recipe(
        lead="Would other rows have given another model? A quarter of the training rows is set aside to "
        "score on, the same for all. The final settings are refitted on the rest: five times on rows drawn "
        "with repeats, three times with noise of 1 % on all numbers, twice with other seeds. The hold-out "
        "stays closed.",
        code=cell(_PERTURBATION_IMPORTS, fill(_PERTURBATION, slots)),
        result=_PERTURBATION_RESULT,
    )


_PERTURBATION_IMPORTS = """
from joblib import Parallel, delayed
from sklearn.utils import resample
"""

_PERTURBATION = r'''
def drawn_again(seed):
    """As many rows, drawn with repeats, each class in its share."""
    strata = in_strata(y_rest, least=1) if IS_CLASSIFICATION else None
    return resample(np.arange(len(X_rest)), random_state=seed, stratify=strata)


def with_noise(X, seed):
    """The rows with noise of 1 % of each number's spread."""
    rng = np.random.default_rng(seed)
    noisy = X.copy()
    for name in columns_by_kind(X)["numbers"]:
        values = X[name].astype("float64")
        noisy[name] = values + 0.01 * values.std() * rng.standard_normal(len(values))
    return noisy


def with_seed(model, seed):
    """The model with another seed wherever it has one."""
    seeds = {name: seed for name in model.get_params() if name.endswith("random_state")}
    return clone(model).set_params(**seeds)


def refitted_score(model, X, y):
    """The primary metric of a refit, on the rows set aside."""
    return float(all_scores(clone(model).fit(X, y), X_aside, y_aside)[PRIMARY])


perturbed_rows = some_rows(<<CELLS>>)
rest, aside = folds_of(y_train[perturbed_rows], 4)[-1]
X_rest, y_rest = X_train.loc[perturbed_rows].iloc[rest], y_train[perturbed_rows].iloc[rest]
X_aside, y_aside = X_train.loc[perturbed_rows].iloc[aside], y_train[perturbed_rows].iloc[aside]

final_settings = for_rows(final_model, len(X_rest))  # its forests shaped for the rows to refit on
refits = []
for number in range(1, 6):
    places = drawn_again(RANDOM_STATE + number)
    refits.append(
        (f"rows drawn with repeats, {number}", final_settings, X_rest.iloc[places], y_rest.iloc[places])
    )
for number in range(1, 4):
    noisy = with_noise(X_rest, RANDOM_STATE + number)
    refits.append((f"1 % noise, {number}", final_settings, noisy, y_rest))
for number in range(1, 3):
    refits.append((f"other seed, {number}", with_seed(final_settings, RANDOM_STATE + number), X_rest, y_rest))
refits.append(("unperturbed", final_settings, X_rest, y_rest))

with parallel_config("loky", inner_max_num_threads=1):
    scores = Parallel(n_jobs=<<JOBS>>)(
        delayed(refitted_score)(model, X, y) for _, model, X, y in refits
    )
reference_score = scores[-1]
perturbation_test_results = [
    {"perturbation": name, "metric": PRIMARY, "score": score}
    for (name, *_), score in zip(refits[:-1], scores[:-1])
]

print(
    f"{len(X_rest):,} rows to refit on, {len(X_aside):,} to score on; unperturbed {PRIMARY} "
    f"{reference_score:.6g}"
)
for result in perturbation_test_results:
    print(f"{result['perturbation']:<28} {PRIMARY} {result['score']:.6g}")
'''

_PERTURBATION_RESULT = r"""
(
    f"Unperturbed, the settings reach {PRIMARY} {short(reference_score)} on {len(X_aside):,} rows set "
    f"aside. Over {counted(len(perturbation_test_results), 'perturbed refit')} it goes from "
    f"**{short(min(result['score'] for result in perturbation_test_results))}** to "
    f"**{short(max(result['score'] for result in perturbation_test_results))}**:\n\n"
    + markdown_table(
        [
            {
                "perturbation": kind,
                "refits": len(kind_scores),
                "from": min(kind_scores),
                "to": max(kind_scores),
            }
            for kind in dict.fromkeys(
                result["perturbation"].rpartition(",")[0] for result in perturbation_test_results
            )
            for kind_scores in [
                [
                    result["score"]
                    for result in perturbation_test_results
                    if result["perturbation"].startswith(kind)
                ]
            ]
        ]
    )
)
"""


# -- parameter_sensitivity ----------------------------------------------------------------------------------


def parameter_sensitivity(kitchen: Kitchen) -> Recipe:
    """Refit with the main settings moved up and down."""
    slots = {
        "MOST": literal(3 if kitchen.iteration == 1 else 1),
        "SCORE": attempted(kitchen, "refitted_score(changed, X_rest, y_rest)", "reference_score"),
    }
    return Recipe(
        lead="Do the settings stand on a peak or on a plateau? The main ones are set to 0.5, 0.75, 1.25 and "
        "1.5 times what they are, one at a time, and refitted and scored on the same rows as before. On a "
        "plateau a little more or less changes next to nothing.",
        code=cell(ATTEMPT if kitchen.iteration > 1 else "", fill(_SENSITIVITY, slots)),
        result=_SENSITIVITY_RESULT,
    )


_SENSITIVITY = r'''
MAIN_SETTINGS = [
    "alpha",
    "C",
    "learning_rate",
    "max_leaf_nodes",
    "num_leaves",
    "min_samples_leaf",
    "max_iter",
    "max_depth",
    "n_estimators",
]


def main_settings(model):
    """The settings that matter most, of the first estimator that has each."""
    settings, chosen = model.get_params(), []
    for wanted in MAIN_SETTINGS:
        for name, value in settings.items():
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            linear_limit = wanted == "max_iter" and not name.replace("max_iter", "max_leaf_nodes") in settings
            if name.rpartition("__")[2] == wanted and "model__" in name and is_number and not linear_limit:
                chosen.append(name)
                break
    return chosen[:<<MOST>>]


sensitivity_analysis_report = []
for name in main_settings(final_settings):
    value = final_settings.get_params()[name]
    for factor in (0.5, 0.75, 1.25, 1.5):
        moved = max(2 if "leaf_nodes" in name or "leaves" in name else 1, round(value * factor))
        moved = moved if isinstance(value, int) else value * factor
        changed = clone(final_settings).set_params(**{name: moved})
        score = <<SCORE>>
        sensitivity_analysis_report.append(
            {
                "setting": name.rpartition("__")[2],
                "factor": factor,
                "value": moved,
                "score": score,
                "change": float(score / reference_score - 1) if reference_score else 0.0,
            }
        )

settings_moved = list(dict.fromkeys(entry["setting"] for entry in sensitivity_analysis_report))
figure, axis = plt.subplots(figsize=(7, 3.8), layout="constrained")
for colour, setting in zip(CLASS_COLOURS, settings_moved):
    entries = [entry for entry in sensitivity_analysis_report if entry["setting"] == setting]
    points = sorted([(entry["factor"], entry["score"]) for entry in entries] + [(1.0, reference_score)])
    axis.plot(*zip(*points), marker="o", color=colour, label=setting)
axis.set(title=f"{PRIMARY} when a setting is moved", xlabel="times its value", ylabel=PRIMARY)
axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
save_chart(figure, "outputs/stability/sensitivity.png", f"{PRIMARY} when one setting is moved up or down")
for entry in sensitivity_analysis_report:
    print(
        f"{entry['setting']:<18} x {entry['factor']:<5} {PRIMARY} {entry['score']:.6g} "
        f"({entry['change']:+.2%})"
    )
'''

_SENSITIVITY_RESULT = r"""
(
    f"{counted(len(settings_moved), 'setting')} moved between half and one and a half times their value. "
    f"The largest change of {PRIMARY} is "
    f"**{max((abs(entry['change']) for entry in sensitivity_analysis_report), default=0):.1%}**, by "
    + (lambda entry: f"`{entry['setting']}` at {entry['factor']:g} times its value.")(
        max(sensitivity_analysis_report, key=lambda entry: abs(entry["change"]))
    )
)
"""
