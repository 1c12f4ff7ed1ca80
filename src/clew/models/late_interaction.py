"""Late interaction through onnxruntime: a vector for every token of a query and of a passage.

A passage is `[CLS] document_prefix tokens [SEP]`, a query `[CLS] query_prefix tokens [SEP]`, filled
up with `[MASK]`, which nothing attends to and which ask, too, for what the model thinks is meant.
Rows of punctuation are left out of passages. Khattab and Zaharia, SIGIR 2020; the model in the
catalogue is answerai-colbert-small-v1, whose last layer comes with Clew.
"""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from clew.errors import ModelError
from clew.models.catalogue import SHIPPED
from clew.models.onnx import Inputs, OnnxModel
from clew.types import Vectors
from clew.validate import multiply, unit

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class OnnxLateInteraction(OnnxModel):
    """Texts to a row of length 1 per token. Loaded on first use; safe across threads."""

    @property
    def dim(self) -> int:
        return self._spec.dim

    def encode_passages(self, texts: Sequence[str]) -> list[Vectors]:
        def finish(given: Inputs, hidden: Vectors) -> Vectors:
            return self._project(hidden[0][self._counts(given["input_ids"])])

        return self._run([(text, None) for text in texts], self._passage, finish)

    def encode_query(self, text: str, *, expand: bool = True) -> Vectors:
        rows = self._project(self._run([(text, None)], self._query)[0][0])
        if expand:
            return rows
        tokenizer, _, _ = self.load()
        return rows[: sum(self._query(tokenizer, text, None)["attention_mask"])]

    def score(self, query: Vectors, passages: Sequence[Vectors]) -> list[float]:
        return [
            float((query @ rows.T).max(axis=1).sum()) if len(rows) else 0.0 for rows in passages
        ]

    def words(self, text: str, *, query: bool = False) -> list[str]:
        tokenizer, _, _ = self.load()
        encoding, most = tokenizer.encode(text), self._spec.max_tokens
        if query:
            most = self._spec.query_tokens
        spans = [encoding.token_to_chars(at) for at in range(1, len(encoding.ids) - 1)][: most - 3]
        numbers = [encoding.char_to_word(span[0]) if span else None for span in spans]
        places = [encoding.word_to_chars(at) if at is not None else None for at in numbers]
        found = [text[slice(*place)] if place else "" for place in places]
        if query:
            return ["", "", *found, *[""] * (most - 2 - len(found))]
        counts = self._counts(self._passage_ids(text))
        return [word for word, kept in zip(("", "", *found, ""), counts, strict=True) if kept]

    # ------------------------------------------------------------------ tokens

    def _passage_ids(self, text: str) -> list[int]:
        tokenizer, _, _ = self.load()
        return self._passage(tokenizer, text, None)["input_ids"]

    def _passage(self, tokenizer: Tokenizer, text: str, _: str | None) -> Inputs:
        ids = self._marked(tokenizer, text, self._spec.document_prefix, self._spec.max_tokens)
        return {
            "input_ids": ids,
            "attention_mask": [1] * len(ids),
            "token_type_ids": [0] * len(ids),
        }

    def _query(self, tokenizer: Tokenizer, text: str, _: str | None) -> Inputs:
        most = self._spec.query_tokens
        ids = self._marked(tokenizer, text, self._spec.query_prefix, most)
        masks = most - len(ids)
        return {
            "input_ids": ids + [_number(tokenizer, "[MASK]")] * masks,
            "attention_mask": [1] * len(ids) + [0] * masks,
            "token_type_ids": [0] * most,
        }

    @staticmethod
    def _marked(tokenizer: Tokenizer, text: str, prefix: str, most: int) -> list[int]:
        """With the token that says what the text is, after the first; at most so many."""
        first, *ids, last = tokenizer.encode(text).ids
        return [first, _number(tokenizer, prefix), *ids[: most - 3], last]

    def _counts(self, ids: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return ~np.isin(ids, self._punctuation)

    @cached_property
    def _punctuation(self) -> list[int]:
        tokenizer, _, _ = self.load()
        found = map(tokenizer.token_to_id, string.punctuation)
        return [number for number in found if number is not None]

    # ------------------------------------------------------------------ the last layer

    def _project(self, hidden: Vectors) -> Vectors:
        rows = hidden if self._projection is None else multiply(hidden, self._projection)
        if rows.shape[1] != self.dim:
            raise ModelError(
                f"{self.model} gives rows of {rows.shape[1]}, its catalogue entry says {self.dim}: "
                "correct `dim` there, or name the `projection` that is missing"
            )
        return unit(rows)

    @cached_property
    def _projection(self) -> Vectors | None:
        """The one table of a safetensors file: a length, that much JSON, numbers."""
        if not self._spec.projection:
            return None
        data = SHIPPED.with_name(self._spec.projection).read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        (table,) = (of for name, of in json.loads(data[8:start]).items() if name[0] != "_")
        rows: Vectors = np.frombuffer(data, "<f4", offset=start).reshape(table["shape"]).T
        return np.ascontiguousarray(rows)


def _number(tokenizer: Tokenizer, token: str) -> int:
    if (number := tokenizer.token_to_id(token)) is None:
        raise ModelError(f"the tokenizer has no {token!r}: correct the prefixes in the catalogue")
    return number
