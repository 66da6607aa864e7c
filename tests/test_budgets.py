"""The budgets of test files: whose they are, and when a run is told to exceed them."""

from types import SimpleNamespace

from budgets import PATH, ROOT, SHARED, Budgets, read_budgets, write_budgets

FILE = "tests/test_budgets.py"


def watch(budgets, tier, *tests):
    """Return budgets after tests with these seconds, those of a trained run, and marks."""
    result = Budgets(budgets, tier)
    for duration, shared, *marks in tests:
        result.pytest_runtest_logreport(
            SimpleNamespace(
                nodeid=f"{FILE}::test_x",
                duration=duration,
                user_properties=[(SHARED, shared)],
                keywords=dict.fromkeys(marks, 1),
            )
        )
    return result


def test_budgets_are_those_of_files_that_exist():
    budgets = read_budgets(PATH)
    assert budgets
    assert [file for file in budgets if not (ROOT / file).exists()] == []
    assert all(0 <= first <= both for first, both in budgets.values())


def test_a_file_that_exceeds_its_budget_by_half_is_told():
    tests = [(10.0, 0.0), (6.0, 0.5), (90.0, 0.0, "exhaustive")]
    assert watch({FILE: [10.0, 100.0]}, 0, *tests).list_exceeded() == [f"{FILE}: 16 s of 10"]
    assert watch({FILE: [10.0, 100.0]}, 1, *tests).list_exceeded() == []
    assert watch({}, 0, (2.0, 0.0)).list_exceeded() == []
    assert watch({}, 0, (0.0, 0.0), (20.0, 18.0)).list_exceeded() == [f"{SHARED}: 18 s of 1"]


def test_a_run_is_merged_into_the_budgets_of_before(tmp_path):
    before = {"tests/gone.py": [5.0, 5.0], FILE: [9.0, 90.0], "tests/budgets.py": [3.0, 4.0]}
    tests = [(2.0, 0.0), (30.0, 0.0, "exhaustive")]
    write_budgets(tmp_path / "budgets.json", watch(before, 1, *tests).update())
    assert read_budgets(tmp_path / "budgets.json") == {
        "tests/budgets.py": [3.0, 4.0],
        FILE: [2.0, 32.0],
    }
    assert watch(before, 0, *tests[:1]).update()[FILE] == [2.0, 90.0]
