"""Options of the tests of a contract, in pairs, and the slow ones of them after the first."""

from typing import Any

import pytest

from tiers import cover_pairs, run_first


def give_options(metafunc: pytest.Metafunc, contract: Any) -> None:
    """Parametrize a test of a `KernelContract` by the fixtures that it takes."""
    names = metafunc.fixturenames
    dtypes = list(contract.tolerances)
    if "chosen" in names:
        first = ["C", "reference"] if "way" in names else ["cuda"]
        cases = cover_pairs(first, dtypes, *contract.options.values())
        parameters = [
            pytest.param(
                *(case.values[:2] if "way" in names else case.values[1:2]),
                dict(zip(contract.options, case.values[2:], strict=True)),
                marks=case.marks,
                id="-".join(map(name_value, case.values)),
            )
            for case in map(as_parameter, cases)
        ]
        arguments = [x for x in ("way", "dtype", "chosen") if x in names]
        metafunc.parametrize(arguments, parameters, indirect=arguments[:-2])
    elif "way" in names:
        ways = ["C", "reference"]
        is_long = metafunc.definition.get_closest_marker("slow") is not None
        metafunc.parametrize("way", run_first(ways) if is_long else ways, indirect=True)
    if "interpreted_case" in names:
        cases = [(options, dtype) for options in contract.interpreted for dtype in dtypes]
        metafunc.parametrize("interpreted_case", run_first(cases))
    if "compiled_case" in names:
        cases = [
            (x, dtype) for x in contract.compiled or contract.interpreted[:1] for dtype in dtypes
        ]
        metafunc.parametrize("compiled_case", run_first(cases))
    if "refused_case" in names:
        ids = [message for *_, message in contract.refused]
        metafunc.parametrize("refused_case", contract.refused, ids=ids)


def name_value(value: Any) -> str:
    """Return the name of an option for a test: the same in every process."""
    return getattr(value, "__name__", str(value)).removeprefix("torch.")


def as_parameter(values: Any) -> Any:
    """Return a `pytest.param`."""
    return values if hasattr(values, "marks") else pytest.param(*values)
