"""Models through PyTorch: those of the hub that have no ONNX graph, on a graphics card if any.

On a card, networks of BERT's kind run in half precision over packed tokens: texts stand one after
the other with no padding between them, and attention keeps to each text. All else runs as
transformers does it. Nothing of Clew is needed above `TorchEmbedder`, so that benchmarks/gpu.py can
measure it on a machine that has PyTorch alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from clew.models.catalogue import CatalogueModel
    from clew.types import Vector, Vectors

PACKED_TOKENS = 262_144
"""Run at once on a card: enough to keep it busy, and far from its memory."""
PACKED_TEXTS = 32_000
"""Run at once: attention on a card takes at most 65,535, and some may be filled up with."""
PADDED_TOKENS = 4_096
COMPILE_AFTER = 200_000
"""Texts, after which it pays to compile the network: that takes half a minute."""
FIRST_POSITION = {"bert": 0, "roberta": 2, "xlm-roberta": 2, "camembert": 2}
"""Networks that can be packed, and the number of the first token's place."""


class Encoder:
    """A transformer that gives a vector of length 1 per text, from lists of token numbers."""

    def __init__(self, network: Any, *, device: str, pooling: str, compiled: bool = False):
        import torch

        self.device = torch.device(device)
        self._first = pooling == "cls"
        config = network.config
        self._packed = (
            self.device.type == "cuda"
            and config.model_type in FIRST_POSITION
            and config.hidden_act == "gelu"
            and getattr(config, "position_embedding_type", "absolute") == "absolute"
        )
        kind = torch.float32 if self.device.type == "cpu" else torch.float16
        self._network = network.to(self.device, kind).eval().requires_grad_(False)
        if self._packed:
            self._weights = _PackedWeights(self._network)
            self._widen = _fuse_gelu(torch)
        self._seen = COMPILE_AFTER + 1 if compiled else 0
        self._compiled: Any = None

    def encode(self, texts: Sequence[Sequence[int]]) -> Vectors:
        """A row per list of token numbers, in their order."""
        import torch

        self._seen += len(texts)
        if self._packed and self._compiled is None and self._seen > COMPILE_AFTER:
            self._compiled = torch.compile(self._run_packed)
        lengths = np.fromiter(map(len, texts), np.int64, count=len(texts))
        order = np.argsort(-lengths, kind="stable")
        vectors = np.empty((len(texts), self._network.config.hidden_size), np.float32)
        under_way: list[tuple[Any, Any]] = []

        def fetch() -> None:
            places, rows = under_way.pop(0)
            vectors[places] = rows.get() if self._packed else rows.cpu().numpy()

        with torch.inference_mode():
            for batch in self._batches(lengths[order]):
                some = [texts[i] for i in order[batch].tolist()]
                rows = self._run(some)[: len(some)]
                under_way.append((order[batch], _Fetched(torch, rows) if self._packed else rows))
                if len(under_way) > 2:  # the card has one batch to run and one to come
                    fetch()
            while under_way:
                fetch()
        return vectors

    def _run(self, texts: Sequence[Sequence[int]]) -> Any:
        if not self._packed:
            return self._run_padded(*self._pad(texts))
        # A few, such as a query, are not filled up to what the compiled network takes.
        if self._compiled is not None and 2 * sum(map(len, texts)) > PACKED_TOKENS:
            return self._compiled(*self._pack(texts, fill=True))
        return self._run_packed(*self._pack(texts))

    def _batches(self, lengths: Any) -> Iterator[slice]:
        """Of lengths that fall, the stretches that are run at once."""
        ends = np.cumsum(lengths)
        start = 0
        while start < len(lengths):
            if self._packed:
                before = int(ends[start - 1]) if start else 0
                end = int(np.searchsorted(ends, before + PACKED_TOKENS, side="right"))
                end = min(end, start + PACKED_TEXTS)
            else:
                end = start + PADDED_TOKENS // max(int(lengths[start]), 1)
            end = min(len(lengths), max(start + 1, end))
            yield slice(start, end)
            start = end

    # ------------------------------------------------------------------ padded

    def _pad(self, texts: Sequence[Sequence[int]]) -> tuple[Any, Any]:
        import torch

        ids = np.zeros((len(texts), max(map(len, texts))), np.int64)
        mask = np.zeros_like(ids)
        for i, text in enumerate(texts):
            ids[i, : len(text)] = text
            mask[i, : len(text)] = 1
        return torch.from_numpy(ids).to(self.device), torch.from_numpy(mask).to(self.device)

    def _run_padded(self, ids: Any, mask: Any) -> Any:
        import torch

        states = self._network(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        rows = states[:, 0] if self._first else (states * weights).sum(1) / weights.sum(1)
        return torch.nn.functional.normalize(rows.float(), dim=-1)

    # ------------------------------------------------------------------ packed

    def _pack(self, texts: Sequence[Sequence[int]], *, fill: bool = False) -> tuple[Any, ...]:
        """Token numbers and their places; where each text begins; the longest text; whether all are
        as long. Filled, they are always about as many, so that the network sees one shape: what
        they are filled up with is dropped."""
        import torch

        lengths = np.array([len(text) for text in texts])
        most = int(lengths.max())
        alike = bool((lengths == most).all())
        spare = max(0, PACKED_TOKENS - int(lengths.sum())) if fill else 0
        filling = [most] * (spare // most) + [spare % most] * bool(spare % most and not alike)
        ends = np.cumsum([0, *lengths, *filling])
        ids = np.zeros(int(ends[-1]), np.int32)
        ids[: int(lengths.sum())] = np.fromiter(chain(*texts), np.int32, count=lengths.sum())
        places = np.arange(len(ids)) - np.repeat(ends[:-1], np.diff(ends))
        # Pinned, so that the card works on one batch while the next is made ready.
        move = (torch.from_numpy(each.astype(np.int32)) for each in (ids, places, ends))
        sent = (each.pin_memory().to(self.device, non_blocking=True) for each in move)
        return (*sent, most, alike)

    def _run_packed(self, ids: Any, places: Any, starts: Any, longest: int, alike: bool) -> Any:
        import torch
        from torch.nn.functional import (
            layer_norm,
            linear,
            normalize,
            scaled_dot_product_attention,
        )

        of = self._weights
        states = of.words[ids] + of.places[places + of.first] + of.kind
        states = layer_norm(states, (of.width,), *of.norm, of.epsilon)
        for layer in of.layers:
            mixed = linear(states, *layer.mix).view(-1, 3, of.heads, of.width // of.heads)
            if alike:  # the card is quicker at that
                cut = mixed.unflatten(0, (-1, longest)).permute(2, 0, 3, 1, 4)
                attended = scaled_dot_product_attention(*cut.unbind(0)).transpose(1, 2)
            else:
                attended = torch.ops.aten._flash_attention_forward(
                    *(*mixed.unbind(1), starts, starts, longest, longest, 0.0, False, False)
                )[0]
            attended = attended.reshape(-1, of.width)
            states = linear(attended, *layer.out) + states
            states = layer_norm(states, (of.width,), *layer.norm, of.epsilon)
            inner = self._widen(states, *layer.widen)
            states = linear(inner, *layer.narrow) + states
            states = layer_norm(states, (of.width,), *layer.last_norm, of.epsilon)
        if self._first:
            rows = states[starts[:-1]].float()
        else:
            sums = torch.cat([states.new_zeros(1, of.width).float(), states.float().cumsum(0)])
            rows = sums[starts[1:]] - sums[starts[:-1]]  # a mean, but for its length
        return normalize(rows, dim=-1)


class _Fetched:
    """Rows on their way from the card into memory that it writes to by itself."""

    def __init__(self, torch: Any, rows: Any):
        self._rows = rows.to("cpu", non_blocking=True)
        self._done = torch.cuda.Event()
        self._done.record()

    def get(self) -> Vectors:
        self._done.synchronize()
        rows: Vectors = self._rows.numpy()
        return rows


def _fuse_gelu(torch: Any) -> Any:
    """A linear layer with its activation (by tanh, which is as near as half precision can tell) in
    one go: apart, the widest states would go through the card's memory twice more. An operation of
    its own, or the compiler would take it to pieces."""
    if not hasattr(torch.ops.clew, "linear_gelu"):

        def linear_gelu(states, weight, bias):  # type: ignore[no-untyped-def]
            return torch._addmm_activation(bias, states, weight.t(), use_gelu=True)

        made = torch.library.custom_op(
            "clew::linear_gelu",
            linear_gelu,
            mutates_args=(),
            schema="(Tensor states, Tensor weight, Tensor bias) -> Tensor",
        )
        made.register_fake(lambda states, weight, _: states.new_empty(len(states), len(weight)))
    return torch.ops.clew.linear_gelu


class _PackedWeights:
    """The weights of a network of BERT's kind, as packed tokens want them."""

    def __init__(self, network: Any):
        import torch

        config, words = network.config, network.embeddings
        self.first = FIRST_POSITION[config.model_type]
        self.heads, self.width = config.num_attention_heads, config.hidden_size
        self.epsilon = config.layer_norm_eps
        self.words, self.places = words.word_embeddings.weight, words.position_embeddings.weight
        self.kind = words.token_type_embeddings.weight[0]
        self.norm = words.LayerNorm.weight, words.LayerNorm.bias
        self.layers = [_PackedLayer(torch, layer) for layer in network.encoder.layer]


class _PackedLayer:
    def __init__(self, torch: Any, layer: Any):
        attention, own = layer.attention, layer.attention.self
        three = own.query, own.key, own.value
        self.mix = (
            torch.cat([each.weight for each in three]),
            torch.cat([each.bias for each in three]),
        )
        self.out, self.norm, self.widen, self.narrow, self.last_norm = (
            (part.weight, part.bias)
            for part in (
                attention.output.dense,
                attention.output.LayerNorm,
                layer.intermediate.dense,
                layer.output.dense,
                layer.output.LayerNorm,
            )
        )


def choose_device(wanted: str) -> str:
    """The device of the settings, as PyTorch calls it."""
    import torch

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if wanted == "auto":
        return next((name for name, usable in there.items() if usable), "cpu")
    if not there.get(wanted, True):
        from clew.errors import ModelError

        raise ModelError(
            f"device = {wanted!r}, but PyTorch finds none here: set `device` to auto or cpu"
        )
    return wanted


class TorchEmbedder:
    """An embedder of the hub's, run as its own configuration says."""

    def __init__(self, model: CatalogueModel, folder: Path, *, device: str = "auto") -> None:
        from clew.errors import ModelError, needs_extra
        from clew.models.catalogue import TOKENIZER_FILE

        with needs_extra("gpu", model.id, ModelError):
            from tokenizers import Tokenizer
            from transformers import AutoModel
        self.model, self.dim = model.identity, model.dim
        self._spec = model
        where = choose_device(device)
        try:
            network = AutoModel.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
            self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        except Exception as error:  # transformers raises whatever it stumbles over
            raise ModelError(f"{model.id} in {folder} cannot be loaded: {error}") from error
        self._tokenizer.enable_truncation(model.max_tokens)
        self._tokenizer.no_padding()
        self._encoder = Encoder(network, device=where, pooling=model.pooling)

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        return self._embed([self._spec.document_prefix + text for text in texts])

    def embed_query(self, text: str) -> Vector:
        row: Vector = self._embed([self._spec.query_prefix + text])[0]
        return row

    def _embed(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        # Not all tokenizers make a token of an empty text.
        found = self._tokenizer.encode_batch(texts)
        return self._encoder.encode([each.ids or [0] for each in found])
