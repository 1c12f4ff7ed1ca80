from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from clew.errors import InputError
from clew.ranking.lookup_score import semantic

rows = arrays(np.float32, 4, elements=st.floats(-1, 1, width=32))


def test_the_same_direction_is_one_across_a_half_opposite_nought() -> None:
    assert semantic([1.0, 0.0], [[2.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]) == [1.0, 0.5, 0.0]


def test_the_storage_s_similarity_is_averaged_in_on_the_same_scale() -> None:
    assert semantic([1.0, 0.0], [[0.0, 1.0]], similarities=[1.0]) == [0.75]
    assert semantic([1.0, 0.0], [[1.0, 0.0], [1.0, 0.0]], similarities=[1.0, None]) == [1.0, 1.0]


def test_what_has_neither_has_no_score_and_the_similarity_will_do() -> None:
    assert semantic([1.0, 0.0], [None, None], similarities=[None, 0.2]) == [None, 0.6]
    assert semantic(None, [[1.0, 0.0]]) == [None]


def test_a_vector_of_another_model_is_passed_over() -> None:
    assert semantic([1.0, 0.0], [[1.0, 0.0, 0.0]]) == [None]


def test_a_similarity_for_each_text() -> None:
    with pytest.raises(InputError, match="give one for each"):
        semantic([1.0], [[1.0]], similarities=[])


@given(rows, st.lists(rows, max_size=5))
def test_scores_lie_between_nought_and_one(query: object, vectors: list[object]) -> None:
    for score in semantic(query, vectors):  # type: ignore[arg-type]
        assert score is not None and 0.0 <= score <= 1.0
