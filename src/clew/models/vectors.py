"""Vectors of length 1: their inner product is their cosine."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from clew.types import Vectors


def unit(rows: npt.NDArray[Any]) -> Vectors:
    """Rows of length 1. A row without a direction (zeros, or not finite) becomes zeros, which is
    near to nothing, rather than NaN, which would spoil every comparison it is in."""
    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0).astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
