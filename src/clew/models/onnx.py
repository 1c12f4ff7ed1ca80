"""Local models through onnxruntime: an embedder and a cross-encoder, on the CPU, without torch.

Each text runs on its own, one thread per text. The weights are int8 with activations quantised on
the fly, over the whole tensor: in a batch, a text's vector depends on its neighbours and on the
padding. Alone, it is the same to the last bit every time. It is also faster, a little so than small
batches and more so than large ones, and threads that share no work do not wait for each other when
another program takes a core.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clew.background import begin
from clew.errors import ModelError
from clew.models.catalogue import MODEL_FILE, TOKENIZER_FILE, CatalogueModel
from clew.models.vectors import unit
from clew.types import Vector, Vectors

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, SessionOptions
    from tokenizers import Tokenizer

Output = npt.NDArray[np.float32]
WEIGHTS_FILE = "weights.bin"
POOLINGS: dict[str, Callable[[Output], Output]] = {
    "cls": lambda tokens: tokens[0],  # the first token's vector speaks for the text
    # There is no padding to leave out: texts run one by one.
    "mean": lambda tokens: tokens.mean(axis=0),
}


class OnnxEmbedder:
    """Sentences to vectors of length 1. The graph is loaded on first use; safe across threads."""

    def __init__(
        self,
        model: CatalogueModel,
        folder: Path,
        *,
        threads: int | None = None,
        brief: bool = False,
    ) -> None:
        """`brief`: for a process that embeds one query and ends; loads faster, runs slower."""
        self.model = model.identity
        self.dim = model.dim
        self._spec = model
        self._runner = _Runner(model, folder, threads=threads, brief=brief)

    def load(self) -> None:
        """Load now rather than on first use, for instance while something else is waited for."""
        self._runner.load()

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        prefix = self._spec.document_prefix
        return self._embed([prefix + text for text in texts])

    def embed_query(self, text: str) -> Vector:
        row: Vector = self._embed([self._spec.query_prefix + text])[0]
        return row

    def _embed(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        pooling = POOLINGS[self._spec.pooling]
        rows = np.stack([pooling(output[0]) for output in self._runner.run(texts)])
        if rows.shape[1] != self.dim:
            raise ModelError(
                f"{self.model} gives vectors of {rows.shape[1]}, its catalogue entry says "
                f"{self.dim}: correct `dim` there"
            )
        return unit(rows)

    def __repr__(self) -> str:
        return f"OnnxEmbedder({self.model!r})"


class OnnxReranker:
    """Scores how well passages answer a query, reading both together: slow and sharp."""

    def __init__(self, model: CatalogueModel, folder: Path, *, threads: int | None = None) -> None:
        self.model = model.identity
        self._runner = _Runner(model, folder, threads=threads)

    def load(self) -> None:
        self._runner.load()

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        """One logit per passage, higher is better; comparable within one query only."""
        outputs = self._runner.run([(query, passage) for passage in passages])
        return [float(output.ravel()[0]) for output in outputs]

    def __repr__(self) -> str:
        return f"OnnxReranker({self.model!r})"


class _Runner:
    """A tokenizer and a graph. Loaded once, on first use, by whichever thread is first."""

    def __init__(
        self, model: CatalogueModel, folder: Path, *, threads: int | None, brief: bool = False
    ) -> None:
        self._model = model
        self._folder = folder
        self._threads = threads or _count_cores()
        self._lock = threading.Lock()
        self._loaded: tuple[Tokenizer, InferenceSession, tuple[str, ...]] | None = None
        self._begun: Callable[[], InferenceSession] | None = None
        if brief:
            # First of all, and the import in this thread: the longest step starts soonest. It lets
            # go of the interpreter lock, so the rest is done beside it.
            import onnxruntime  # noqa: F401

            self._begun = begin(partial(_open_session, folder, brief=True))

    def load(self) -> tuple[Tokenizer, InferenceSession, tuple[str, ...]]:
        with self._lock:
            if self._loaded is None:
                try:
                    tokenizer = _open_tokenizer(self._model, self._folder)
                    session = (
                        self._begun() if self._begun else _open_session(self._folder, brief=False)
                    )
                except Exception as error:  # both libraries raise bare or private types
                    raise ModelError(
                        f"model {self._model.id!r} in {self._folder} cannot be loaded: {error}. "
                        f"Fetch it again: `clew models remove {self._model.id}`, then "
                        f"`clew models pull {self._model.id}`"
                    ) from error
                names = tuple(put.name for put in session.get_inputs())
                self._loaded = tokenizer, session, names
            return self._loaded

    def run(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> list[Output]:
        """The graph's first output for each text or pair, in their order."""
        tokenizer, session, names = self.load()

        def one(text: str | tuple[str, str]) -> Output:
            encoding = tokenizer.encode(*(text if isinstance(text, tuple) else (text,)))
            given = {
                "input_ids": encoding.ids,
                "attention_mask": encoding.attention_mask,
                "token_type_ids": encoding.type_ids,
            }
            inputs = {name: np.array([given[name]], dtype=np.int64) for name in names}
            output: Output = session.run(None, inputs)[0]
            return output

        if self._threads == 1 or len(texts) < 2:
            return [one(text) for text in texts]
        # Longest first: otherwise the last one may be long, and the other cores wait for it.
        order = sorted(range(len(texts)), key=lambda i: -_count_characters(texts[i]))
        outputs: list[Output] = [np.empty(0, dtype=np.float32)] * len(texts)
        from concurrent.futures import ThreadPoolExecutor  # slow, and for a query in vain

        pool = ThreadPoolExecutor(min(self._threads, len(texts)), thread_name_prefix="clew-onnx")
        try:
            results = pool.map(one, [texts[i] for i in order])
            for i, output in zip(order, results, strict=True):
                outputs[i] = output
        finally:
            pool.shutdown(cancel_futures=True)  # an interrupt does not wait for the rest
        return outputs


def _count_characters(text: str | tuple[str, str]) -> int:
    return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])


def _count_cores() -> int:
    """The cores this process may use, which in a container are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _open_tokenizer(model: CatalogueModel, folder: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    tokenizer.enable_truncation(model.max_tokens)
    # Some files ask to pad every text to 128 or even 512 tokens.
    tokenizer.no_padding()
    return tokenizer


def _open_session(folder: Path, *, brief: bool) -> InferenceSession:
    """The graph, from the optimised copy beside it if there is one; else that copy is made.

    The copy loads faster: its weights lie in a file of their own that is mapped rather than parsed;
    vectors are identical to the bit. It is derived: it can be deleted at any time, and where it
    cannot be written all works without.
    """
    import onnxruntime as ort

    level = ort.GraphOptimizationLevel
    # The optimised graph belongs to the runtime that made it.
    copy = folder / f"ort-{ort.__version__}-{platform.machine()}"
    # A copy that does not load is no reason to fail: the original is right beside it.
    with contextlib.suppress(Exception):
        if (copy / MODEL_FILE).is_file():
            options = _options(level.ORT_DISABLE_ALL)
            if brief:  # less to load, a little more for each text
                options.add_session_config_entry("session.disable_prepacking", "1")
            return _open(copy / MODEL_FILE, options)
    shutil.rmtree(copy, ignore_errors=True)
    # Levels beyond this one write graphs for this one CPU, and here they gain nothing.
    options = _options(level.ORT_ENABLE_EXTENDED)
    draft = folder / f".ort-{os.getpid()}-{threading.get_ident()}"
    options.optimized_model_filepath = str(draft / MODEL_FILE)
    setting = "session.optimized_model_external_initializers"
    options.add_session_config_entry(f"{setting}_file_name", WEIGHTS_FILE)
    options.add_session_config_entry(f"{setting}_min_size_in_bytes", "1024")
    try:
        draft.mkdir()
        session = _open(folder / MODEL_FILE, options)
    except Exception:  # read-only, disk full: the runtime raises its own types
        session = _open(folder / MODEL_FILE, _options(level.ORT_ENABLE_EXTENDED))
    else:
        with contextlib.suppress(OSError):  # another process was quicker: theirs is as good
            for path in draft.iterdir():
                with path.open("rb+") as opened:
                    os.fsync(opened.fileno())
            draft.rename(copy)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return session


def _open(path: Path, options: SessionOptions) -> InferenceSession:
    import onnxruntime as ort

    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _options(level: Any) -> SessionOptions:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = 1  # texts run side by side instead: see above
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return options
