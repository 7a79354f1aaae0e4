"""Names that a cell assigns."""

import pytest

from detent.flows.notebook.measuring.expressions import assigned_names, free_names, without_magics


class TestAssignedNames:
    """N-102: what counts as produced by a cell."""

    @pytest.mark.parametrize(
        ("source", "names"),
        [
            ("frame = 1", {"frame"}),
            ("a = b = c", {"a", "b"}),
            ("a, (b, *rest) = value", {"a", "b", "rest"}),
            ("total += 1", {"total"}),
            ("count: int = 1", {"count"}),
            ("for row in rows:\n    last = row", {"row", "last"}),
            ("with opened as file:\n    text = file.read()", {"file", "text"}),
            ("import numpy as np\nimport os.path\nfrom a import b as c, d", {"np", "os", "c", "d"}),
            ("def make(x):\n    inner = 1\n    return inner", {"make"}),
            ("class Model:\n    size = 1", {"Model"}),
            ("if ready:\n    frame = 1\nelse:\n    report = 2", {"frame", "report"}),
            ("while (line := read()):\n    pass", {"line"}),
            ("[seen := x for x in rows]", {"seen"}),
            ("squares = [x * x for x in rows]", {"squares"}),
            ("f = lambda x: x", {"f"}),
            ("try:\n    a = 1\nexcept ValueError as error:\n    b = 2", {"a", "b"}),
            ("match value:\n    case [first, *others]:\n        pass", {"first", "others"}),
            ("match value:\n    case {'a': one, **rest}:\n        pass", {"one", "rest"}),
            ("def fill():\n    global frame\n    frame = 1", {"fill", "frame"}),
            ("%matplotlib inline\nframe = 1", {"frame"}),
            ("files = !ls", {"files"}),
            ("frame = 1\ndel frame", set()),
            ("del frame\nframe = 1", {"frame"}),
            ("frame = frame.dropna()", {"frame"}),
        ],
    )
    def test_names_bound_at_the_top_level_are_assigned(self, source, names):
        assert assigned_names(source) == names

    @pytest.mark.parametrize(
        "source",
        [
            "frame",
            "frame['x'] = 1",
            "frame.index = index",
            "frame.dropna(inplace=True)",
            "print(frame)",
            "frame == 1",
            "frame: int",
            "def f(frame):\n    frame = 1",
            "[frame for frame in frames]",
            "text = 'frame = 1'",
            "# frame = 1",
            "final_model.fit(X, y)",
            "frame = (",
        ],
    )
    def test_what_is_only_used_or_changed_in_part_is_not(self, source):
        assert "frame" not in assigned_names(source)
        assert "final_model" not in assigned_names(source)

    def test_a_cell_magic_is_no_python(self):
        assert assigned_names("%%bash\nframe=1") == frozenset()
        assert without_magics("  !ls\nx = 1") == "  pass\nx = 1"


def test_free_names_of_an_expression_leave_out_its_own():
    assert free_names("[x + y for x in rows if (lambda z: z + w)(x)]") == {"y", "rows", "w"}
