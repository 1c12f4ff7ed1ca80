"""One request for vectors, in OpenAI's form or in Gemini's own, and the vectors of the answer."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clew.models.apis import ApiModel, Role
from clew.models.endpoint import load_openai

if TYPE_CHECKING:
    from openai import OpenAI

__all__ = ["ask", "read"]


def ask(client: OpenAI, url: str, model: ApiModel, texts: list[str], role: Role) -> Any:
    """The answer, whatever it is."""
    texts = [role.prefix + text for text in texts]
    if role.task:
        return _ask_gemini(client, url, model, texts, role.task)
    # Floats are not the client's default: Gemini and older vLLM refuse base64.
    options: dict[str, Any] = {"dimensions": model.dim} if model.dim else {}
    return client.embeddings.create(
        model=model.name, input=texts, encoding_format="float", **options
    )


def _ask_gemini(client: OpenAI, url: str, model: ApiModel, texts: list[str], task: str) -> Any:
    """Gemini's own method, beside its compatible endpoint: the only one that takes a task type.

    It wants the key in a header of its own, and refuses a request with two.
    """
    path = f"models/{model.name}"
    each: dict[str, Any] = {"model": path, "taskType": task}
    if model.dim:
        each["outputDimensionality"] = model.dim
    requests = [{**each, "content": {"parts": [{"text": text}]}} for text in texts]
    return client.post(
        f"{url.rstrip('/').removesuffix('openai')}{path}:batchEmbedContents",
        cast_to=object,
        body={"requests": requests},
        options={
            "headers": {"Authorization": load_openai().Omit(), "x-goog-api-key": client.api_key}
        },
    )


def read(answer: Any) -> tuple[list[int], list[npt.NDArray[np.float64]]]:
    """Vectors, and which text each is of. What is not an answer raises whatever comes of it."""
    if isinstance(answer, dict):
        found = [item["values"] for item in answer["embeddings"]]
        indices = list(range(len(found)))
    else:
        found = [item.embedding for item in answer.data]
        # Gemini leaves out an index of 0, some gateways send 0 for all: then the order counts.
        indices = [int(item.index or 0) for item in answer.data]
        if not any(indices):
            indices = list(range(len(found)))
    return indices, [_row(each) for each in found]


def _row(embedding: Any) -> npt.NDArray[np.float64]:
    """The numbers of one vector: a list, or base64 of float32 where a server sends that anyway."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding), dtype="<f4").astype(np.float64)
    return np.asarray(embedding, dtype=np.float64)
