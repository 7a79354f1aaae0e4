"""N-111: target and task are right on sentences and tables as people have them, or the doubt is told."""

import numpy as np
import pandas as pd
import pytest

from detent.flows.notebook.domain.problem import ProblemError
from detent.flows.notebook.domain.target import TargetUnclear, find_target
from detent.flows.notebook.domain.task import find_task
from detent.flows.notebook.domain.thresholds import metrics_named, read_thresholds
from tests.flows.notebook.domain.made_tables import made_table

AMES = (
    "PID:key MSZoning:cat LotArea:int YearBuilt:int Neighborhood:cat(20) HouseStyle:cat OverallQual:few(10)"
    " GrLivArea:int SaleType:cat SaleCondition:cat YrSold:few(5) SalePrice:int"
)
AMES_SPACED = (
    "Order:key | Lot Area:int | House Style:cat | Sale Type:cat | SalePrice:int | Sale Condition:cat"
)
TITANIC = "PassengerId:key Survived:bin Pclass:few(3) Name:text Sex:cat(2) Age:num Fare:num Embarked:cat"
IRIS = "sepal_length:num sepal_width:num petal_length:num petal_width:num species:cat(3)"
CHURN = "customerID:key gender:cat(2) tenure:int Contract:cat MonthlyCharges:num TotalCharges:num Churn:yes"
WINE = "fixed acidity:num | citric acid:num | residual sugar:num | alcohol:num | quality:few(7)"
BIKES = "instant:key dteday:date season:few(4) hr:few(24) temp:num hum:num casual:int registered:int cnt:int"
BOSTON = "CRIM:num ZN:num RM:num AGE:num LSTAT:num MEDV:num"
CARS = "model:cat(40) year:few(20) mileage:int fuel_type:cat list_price:money horsepower:int"
CANCER = "id:key diagnosis:cat(2) radius_mean:num texture_mean:num area_mean:num"
LOANS = "Loan_ID:key ApplicantIncome:int LoanAmount:int Credit_History:bin Property_Area:cat Loan_Status:yes"
STUDENTS = "school:cat(2) sex:cat(2) age:few(6) absences:few(30) G1:num G2:num G3:num"
LETTERS = "A:num B:num C:num"
SHOPS = "store_id:few(12) day:date promo:bin price:num units_sold:int revenue:num"
LABELLED = "x1:num x2:num label:cat(2) x3:num"
PLAIN = "height:num width:num weight:num"
CLINICS = "clinic:cat(9) age:num pressure:num dose:num outcome_score:num"
FLOORS = "House.Style:cat BsmtFin.SF.1:num BsmtFin.SF.2:num X2nd.Flr.SF:num SalePrice:int"
STAFF = "employee_no:key age:int yearly_salary:int Attrition:yes years_employed:int"

FOUND = [
    # The contract's own sentences.
    ("Predict SalePrice from LotArea and YearBuilt", AMES, "SalePrice", "regression"),
    ("house price, RMSE < 25000", AMES, "SalePrice", "regression"),
    ("Build house price model, RMSE < 25000, R² > 0.85", AMES, "SalePrice", "regression"),
    # Named after a verb.
    ("Predict SalePrice", AMES, "SalePrice", "regression"),
    ("predict saleprice, please", AMES, "SalePrice", "regression"),
    ("Predict the sale price of each house", AMES, "SalePrice", "regression"),
    ("Estimate the SalePrice of houses by Neighborhood", AMES, "SalePrice", "regression"),
    ("Please predict `GrLivArea` of houses, RMSE below 300", AMES, "GrLivArea", "regression"),
    ("Classify MSZoning", AMES, "MSZoning", "classification"),
    ("Using LotArea and YearBuilt, predict SalePrice", AMES, "SalePrice", "regression"),
    ("Predict from LotArea the SalePrice", AMES, "SalePrice", "regression"),
    ("Use OverallQual, GrLivArea and YearBuilt to estimate SalePrice.", AMES, "SalePrice", "regression"),
    ("Based on OverallQual and GrLivArea, what is the SalePrice?", AMES, "SalePrice", "regression"),
    ("Explain SalePrice by the age of the house", AMES, "SalePrice", "regression"),
    ("Model SalePrice as a function of GrLivArea", AMES, "SalePrice", "regression"),
    ("Predict the sale price", AMES_SPACED, "SalePrice", "regression"),
    ("A prediction model for SalePrice. Use everything.", AMES, "SalePrice", "regression"),
    ("We want a model of SalePrice with R2 over 0.8", AMES, "SalePrice", "regression"),
    ("SalePrice prediction with MAE under 20k", AMES, "SalePrice", "regression"),
    ("Predict whether a passenger survived", TITANIC, "Survived", "classification"),
    ("Which passengers survived? Accuracy above 80%", TITANIC, "Survived", "classification"),
    ("Predict survival on the Titanic", TITANIC, "Survived", "classification"),
    ("Predict Age from Sex and Pclass", TITANIC, "Age", "regression"),
    ("Predict the Fare that a passenger paid", TITANIC, "Fare", "regression"),
    ("Classify the species of iris flowers", IRIS, "species", "classification"),
    ("Given sepal length and petal width, which species is it?", IRIS, "species", "classification"),
    ("Predict petal width given the other measurements", IRIS, "petal_width", "regression"),
    ("Tell the species apart with 90% accuracy", IRIS, "species", "classification"),
    ("Predict which customers churn", CHURN, "Churn", "classification"),
    ("Predict churn, F1 of at least 0.6", CHURN, "Churn", "classification"),
    ("Customer churn prediction", CHURN, "Churn", "classification"),
    ("Will a customer churn?", CHURN, "Churn", "classification"),
    ("Predict TotalCharges from tenure and MonthlyCharges", CHURN, "TotalCharges", "regression"),
    ("Predict wine quality", WINE, "quality", "classification"),
    ("Predict wine quality, MAE below 0.6", WINE, "quality", "regression"),
    ("Predict quality of wine from its residual sugar and alcohol", WINE, "quality", "classification"),
    ("Estimate the alcohol content", WINE, "alcohol", "regression"),
    ("Predict cnt, the number of bikes, from season and temp", BIKES, "cnt", "regression"),
    ("Estimate the crime-adjusted value (MEDV) of homes", BOSTON, "MEDV", "regression"),
    ("The target is MEDV. Predict it well.", BOSTON, "MEDV", "regression"),
    ("Regression with LSTAT as the target", BOSTON, "LSTAT", "regression"),
    ("Predict the list price of used cars", CARS, "list_price", "regression"),
    ("Build a model to predict horsepower from the mileage", CARS, "horsepower", "regression"),
    ("price of a car, MAE < 2000", CARS, "list_price", "regression"),
    ("Predict the diagnosis", CANCER, "diagnosis", "classification"),
    ("Diagnose cancer from cell measurements", CANCER, "diagnosis", "classification"),
    ("Predict Loan_Status", LOANS, "Loan_Status", "classification"),
    ("Will it be granted? Predict the loan status from the applicant's income", LOANS, "Loan_Status",
     "classification"),
    ("Predict G3 from G1 and G2", STUDENTS, "G3", "regression"),
    ("Predict the final grade G3 of students", STUDENTS, "G3", "regression"),
    ("Predict A from B and C", LETTERS, "A", "regression"),
    ("A model that predicts C", LETTERS, "C", "regression"),
    ("How much is sold? Predict units_sold for stores that are not in the table", SHOPS, "units_sold",
     "regression"),
    ("How does revenue depend on price and promo?", SHOPS, "revenue", "regression"),
    ("Predict the outcome score for clinics that are not in the table", CLINICS, "outcome_score",
     "regression"),
    ("Estimate pressure for new clinics", CLINICS, "pressure", "regression"),
    ("Make a good model of this", LABELLED, "label", "classification"),
    # In other words than the column's.
    ("Predict what the house sells for", AMES, "SalePrice", "regression"),
    ("Predict what the house sells for, R2 at least 0.8", FLOORS, "SalePrice", "regression"),
    ("How much is a used car worth?", CARS, "list_price", "regression"),
    ("Estimate what an employee earns", STAFF, "yearly_salary", "regression"),
    ("Which of the patients dies?", "age:num dose:num stage:few(4) death:bin weeks:num", "death",
     "classification"),
    ("Predict which employees leave", STAFF, "Attrition", "classification"),
    # Words that stand for something else.
    ("Predict the weight. The training data has more than 200 rows.", PLAIN, "weight", "regression"),
    ("This is not a forecasting problem: predict revenue from price", SHOPS, "revenue", "regression"),
    ("Predict SalePrice with high accuracy", AMES, "SalePrice", "regression"),
    ("Predict Survived with high accuracy", TITANIC, "Survived", "classification"),
    ("Do not cluster, predict SalePrice", AMES, "SalePrice", "regression"),
]  # fmt: skip


def read(problem, table, option=None):
    metrics = [mention.metric for mention in metrics_named(problem, table.columns)]
    choice = find_target(problem, table, option=option, metrics=metrics)
    thresholds, _ = read_thresholds(problem, table.columns)
    return choice, find_task(problem, table[choice.column], thresholds, table.columns)


@pytest.mark.parametrize(("problem", "table", "target", "task"), FOUND, ids=[row[0][:50] for row in FOUND])
def test_target_and_task_are_found(problem, table, target, task):
    choice, found = read(problem, made_table(table))
    assert (choice.column, found) == (target, task)
    assert choice.warning is None


def test_the_corpus_is_large_enough():
    assert len(FOUND) >= 50


class TestUnclearTargets:
    @pytest.mark.parametrize(
        ("problem", "table", "candidates"),
        [
            ("Predict price and revenue", SHOPS, {"price", "revenue"}),
            ("house prices", "house_price:num list_price:num house_size:num x:num", None),
            ("Predict the price", "list_price:num sale_price:num size:num", {"list_price", "sale_price"}),
            ("height, weight and so on", PLAIN, {"height", "weight"}),
            ("Predict X", "x:num X:num y:num", None),
        ],
    )
    def test_equal_candidates_are_all_named(self, problem, table, candidates):
        if candidates is None:
            choice, _ = read(problem, made_table(table))
            assert choice.column in ("house_price", "X")
            return
        with pytest.raises(TargetUnclear) as caught:
            read(problem, made_table(table))
        assert set(caught.value.candidates) == candidates
        assert caught.value.exit_code == 2

    def test_the_option_settles_it(self):
        choice, _ = read("Predict price and revenue", made_table(SHOPS), option="revenue")
        assert choice.column == "revenue"

    def test_nothing_named_is_the_last_column_and_is_told(self):
        choice, task = read("Have a look at this", made_table(PLAIN))
        assert (choice.column, task) == ("weight", "regression")
        assert choice.warning is not None

    @pytest.mark.parametrize(
        "problem",
        ["Predict price", "Estimate the price of a parcel", "predict Hight; R2 > 0.5", "Classify the colour"],
    )
    def test_what_is_named_and_no_column_is_asked_for_and_not_replaced(self, problem):
        with pytest.raises(TargetUnclear) as caught:
            read(problem, made_table(PLAIN))
        assert set(caught.value.candidates) <= {"height", "width", "weight"}
        assert caught.value.candidates

    @pytest.mark.parametrize(
        "problem",
        ["Predict the last column", "Predict as well as you can", "Predict; R2 > 0.5", "A predictive model",
         "Predict it well, RMSE < 2", "A good model for new rows"],
    )  # fmt: skip
    def test_a_verb_without_an_object_names_nothing(self, problem):
        choice, _ = read(problem, made_table(PLAIN))
        assert choice.column == "weight"
        assert "last" in (choice.warning or "")

    def test_a_column_named_target_is_taken_and_told(self):
        choice, _ = read("Predict the price", made_table("a:num target:num b:num"))
        assert choice.column == "target"
        assert "price" in (choice.warning or "")

    @pytest.mark.parametrize("limit", ["R2 at least 0.8", "RMSE < 2", "R² > 0.85, MAE below 2"])
    def test_the_figures_of_a_limit_name_no_column(self, limit):
        choice, _ = read(f"See how it behaves, {limit}", made_table("SF.2:num R.8:num a.85:num last:num"))
        assert choice.column == "last"
        assert choice.warning is not None

    def test_an_option_that_is_no_column_names_the_nearest(self):
        with pytest.raises(ProblemError, match="'SalePrice'"):
            read("Predict", made_table(AMES), option="SalesPrice")


ODD_NAMES = [
    'a"b',
    "it's",
    "x\ny",
    "class",
    "</add-code2run>",
    "#",
    "$ amount",
    "größe",
    "价格",
    "1",
    "a.b-c",
    "%",
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_odd_name_is_found_where_it_is_named(name):
    table = made_table("first:num other:num last:num").rename(columns={"other": name})
    assert read(f"Predict '{name}' from first", table)[0].column == name
    assert read("Go", table, option=name)[0].column == name


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([0.0, 1.0, None, 1.0, 0.0], "classification"),
        ([1, 2, 3, 4, 5] * 4, "classification"),
        (list(range(21)) * 2, "regression"),
        ([1.5, 2.5, 3.5], "regression"),
        (["a", "b"], "classification"),
        ([True, False], "classification"),
        ([f"${n},500" for n in range(60)], "regression"),
        ([f"{n},000 km" for n in range(60)], "regression"),
        ([f"{n}.5%" for n in range(60)], "regression"),
        (["<=50K", ">50K"], "classification"),
    ],
)
def test_values_alone_tell_the_task(values, task):
    series = pd.Series((values * 60)[:60], name="y")
    assert find_task("Predict y", series) == task


def test_whole_numbers_are_classes_only_where_each_is_frequent():
    choice = np.random.default_rng(0)
    few_rows = pd.Series(choice.integers(0, 10, 80), name="y")
    many_rows = pd.Series(choice.integers(0, 10, 400), name="y")
    assert find_task("Predict y", few_rows) == "regression"
    assert find_task("Predict y", many_rows) == "classification"


@pytest.mark.parametrize(
    "problem",
    [
        "Forecast sales",
        "Predict sales for the next 12 months",
        "Build a time series model of sales",
        "Predict tomorrow's sales",
        "Cluster the customers by sales",
        "Find groups of similar customers",
        "Segment our customers into 5 groups",
        "Customer segmentation",
        "Summarize the sales notes",
        "Write a description of each product",
    ],
)
def test_other_kinds_of_problems_are_refused(problem):
    with pytest.raises(ProblemError):
        find_task(problem, made_table("sales:num")["sales"])


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        ("Predict y with accuracy above 0.9", "num"),
        ("Predict y, F1 > 0.8", "int"),
        ("Predict y, RMSE < 5", "cat(3)"),
        ("Predict y, RMSE < 5", "yes"),
        ("Predict y, RMSE < 5 and accuracy > 0.9", "bin"),
        ("Predict y", "text"),
        ("Predict y", "date"),
        ("Predict y", "one"),
        ("Classify y", "num"),
        ("Predict whether y is high", "num"),
    ],
)
def test_a_metric_or_a_word_that_does_not_fit_is_refused(problem, kind):
    table = made_table(f"y:{kind} x:num")
    thresholds, _ = read_thresholds(problem, table.columns)
    with pytest.raises(ProblemError):
        find_task(problem, table["y"], thresholds, table.columns)


def test_too_few_rows_are_refused():
    with pytest.raises(ProblemError, match="9 rows"):
        find_task("Predict y", made_table("y:num", rows=9)["y"])


def test_a_churn_rate_is_a_number():
    assert find_task("Predict the churn rate", made_table("churn_rate:num")["churn_rate"]) == "regression"
