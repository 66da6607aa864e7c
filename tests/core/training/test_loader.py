"""Making batches ahead of time."""

import threading
import time

import pytest

from pipeline_core.training.loader import prefetch


def test_order_does_not_depend_on_speed():
    def make(number):
        time.sleep(0.01 if number % 2 else 0)
        return number

    assert list(prefetch(make, range(12))) == list(range(12))
    assert list(prefetch(make, [])) == []


def test_made_in_another_thread_and_not_too_far_ahead():
    made = []

    def make(number):
        made.append(number)
        return threading.get_ident()

    results = prefetch(make, range(50))
    assert next(results) != threading.get_ident()
    time.sleep(0.05)
    assert len(made) <= 4
    results.close()
    time.sleep(0.05)
    assert len(made) <= 4


def test_an_error_arrives_where_its_result_would():
    def make(number):
        if number == 2:
            raise ValueError("damaged sample")
        return number

    results = prefetch(make, range(9))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="damaged sample"):
        next(results)
