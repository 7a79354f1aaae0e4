"""The code policy of cells that an agent wrote."""

import pytest

from detent.flows.notebook.measuring.code_policy import check_policy


def codes(source, policy="guarded", **settings):
    return [problem.code for problem in check_policy(source, policy, **settings)]


class TestGuarded:
    """Section 5.2."""

    @pytest.mark.parametrize(
        ("source", "code"),
        [
            ("!ls", "shell"),
            ("x = 1\n  !pip install pandas", "shell"),
            ("%%bash\nls", "shell"),
            ("%matplotlib inline\nx = 1", "shell"),
            ("%pip install pandas", "shell"),
            ("files = !ls", "shell"),
            ('get_ipython().system("ls")', "forbidden_call"),
            ("from IPython import get_ipython as g", "forbidden_call"),
            ("import subprocess", "forbidden_import"),
            ("import subprocess as sp", "forbidden_import"),
            ("from subprocess import run", "forbidden_import"),
            ('os.system("ls")', "forbidden_call"),
            ('import os as o\no.system("ls")', "forbidden_call"),
            ('os.popen("ls").read()', "forbidden_call"),
            ("from os import popen", "forbidden_call"),
            ('os.execv("/bin/sh", [])', "forbidden_call"),
            ('__import__("subprocess")', "forbidden_call"),
            ('importlib.import_module("subprocess")', "forbidden_call"),
            ('exec("x = 1")', "forbidden_call"),
            ("import socket", "forbidden_import"),
            ("import requests", "forbidden_import"),
            ("import urllib.request", "forbidden_import"),
            ("from urllib import request", "forbidden_import"),
            ("from urllib.request import urlopen", "forbidden_import"),
            ("import http.client", "forbidden_import"),
            ('pd.read_csv("https://example.org/a.csv")', "forbidden_call"),
            ("import pip", "forbidden_import"),
            ('open("/etc/passwd")', "outside_path"),
            ('pd.read_csv("/data/houses.csv")', "outside_path"),
            ('Path("~/houses.csv")', "outside_path"),
            ('pd.read_csv("../houses.csv")', "outside_path"),
            ('path = "../../secret"', "outside_path"),
            (r'path = "C:\\Users\\me\\a.csv"', "outside_path"),
            ('Path("a") / ".." / "b"', "outside_path"),
            ('frame.to_csv("/srv/out.csv")', "outside_path"),
            ('f"/tmp/{name}"', "outside_path"),
            ("def f(:", "syntax"),
            ("if True:\nx = 1", "syntax"),
        ],
    )
    def test_refuses_what_leaves_the_notebook(self, source, code):
        assert code in codes(source)
        assert "shell" not in codes(source, "open")

    @pytest.mark.parametrize(
        "source",
        [
            "import os\nos.makedirs('outputs/eda', exist_ok=True)",
            "import urllib.parse",
            "from importlib.metadata import version",
            "from IPython.display import Markdown, display",
            'pd.read_csv("assets/houses.csv")',
            'Path("./models/model.pkl").write_bytes(b"")',
            'label = "km/h"',
            'label = "/month"',
            'frame["price"].str.replace("/", "-")',
            '"/".join(parts)',
            'print("see https://example.org")',
            "text = '''\n!not a command\n%nor this\n'''",
            "rest = total % parts",
            "rest = (total\n    % parts)",
            "ratio = ~mask",
            'f"{base}/run/{name}"',
            'print("a .. b")',
            "model.eval_set = 1",
            "frame.eval('a + b')",
            "a != b",
        ],
    )
    def test_lets_ordinary_work_pass(self, source):
        assert codes(source) == []

    def test_says_where_it_is(self):
        (problem,) = check_policy("x = 1\n\nimport subprocess", cell=2)
        assert (problem.cell, problem.line, problem.name) == (2, 3, "subprocess")
        assert str(problem) == "cell 3, line 3: 'subprocess' starts programs"

    def test_a_very_deep_expression_is_a_problem_and_not_a_crash(self):
        assert codes("x = " + "(" * 3000 + "1" + ")" * 3000) == ["syntax"]


class TestOtherPolicies:
    def test_open_refuses_only_what_is_no_python(self):
        assert codes("import subprocess\n!ls\nopen('/etc/passwd')", "open") == []
        assert codes("def f(:", "open") == ["syntax"]

    def test_strict_allows_only_listed_imports(self):
        assert codes("import pandas as pd\nfrom sklearn.svm import SVR", "strict") == []
        assert codes("import torch", "strict") == ["forbidden_import"]
        assert codes("from torch.nn import Linear", "strict") == ["forbidden_import"]
        assert codes("from . import helper", "strict") == ["forbidden_import"]
        assert codes("import torch", "strict", allowed_imports={"torch"}) == []
        assert "shell" in codes("!ls", "strict")
