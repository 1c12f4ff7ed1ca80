"""Local models through onnxruntime: an embedder, a cross-encoder and what others build on, on the
CPU, without torch.

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
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from clew.background import begin, is_running, library_call
from clew.errors import ModelError
from clew.models.catalogue import (
    MODEL_FILE,
    TOKENIZER_FILE,
    CatalogueModel,
    is_own,
    read_whole,
)
from clew.trust import flush
from clew.types import Vector, Vectors
from clew.validate import unit

# Its wheels send what they count to their maker, unless this is set before the first import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

Output = npt.NDArray[np.float32]
Inputs = dict[str, list[int]]
"""What a graph may ask for, by name."""
WEIGHTS_FILE = "weights.bin"


class OnnxModel:
    """A tokenizer and a graph. Loaded on first use, by whichever thread is first."""

    def __init__(
        self,
        model: CatalogueModel,
        folder: Path,
        *,
        threads: int | None = None,
        brief: bool = False,
        device: str = "auto",
    ) -> None:
        """`brief`: for a process that embeds one query and ends; loads faster, runs slower."""
        self.model = model.identity
        self._spec, self._folder = model, folder
        self._threads = threads or _count_cores()
        self._lock = threading.Lock()
        self._loaded: tuple[Tokenizer, InferenceSession, tuple[str, ...]] | None = None
        self._open_session: Callable[[], InferenceSession] = partial(
            _open_session, model, folder, device=device
        )
        if brief:
            # First of all, and the import in this thread: the longest step starts soonest. It lets
            # go of the interpreter lock, so the rest is done beside it.
            import onnxruntime  # noqa: F401

            self._open_session = begin(
                partial(_open_session, model, folder, brief=True, device=device)
            )

    def load(self) -> tuple[Tokenizer, InferenceSession, tuple[str, ...]]:
        """Load now rather than on first use, for instance while something else is waited for."""
        with self._lock:
            if self._loaded is None:
                try:
                    tokenizer = _open_tokenizer(self._spec, self._folder)
                    session = self._open_session()
                except ModelError:
                    raise
                except Exception as error:  # both libraries raise bare or private types
                    raise ModelError(
                        f"model {self._spec.id!r} in {self._folder} cannot be loaded: {error}. "
                        f"Fetch it again: `clew models remove {self._spec.id}`, then "
                        f"`clew models pull {self._spec.id}`"
                    ) from error
                names = tuple(put.name for put in session.get_inputs())
                self._loaded = tokenizer, session, names
            return self._loaded

    def _run(
        self,
        texts: Sequence[tuple[str, str | None]],
        tokenise: Callable[[Tokenizer, str, str | None], Inputs] | None = None,
        finish: Callable[[Inputs, Output], Output] | None = None,
    ) -> list[Output]:
        """`finish` makes of what went in and what came out the result, in the text's thread."""
        tokenizer, session, names = self.load()
        first = session.get_outputs()[0].name

        def run_one(text: tuple[str, str | None]) -> Output:
            with library_call():
                given = (tokenise or _tokenise)(tokenizer, *text)
                inputs = {name: np.array([given[name]], dtype=np.int64) for name in names}
                output: Output = session.run([first], inputs)[0]
            return output if finish is None else finish(given, output)

        if self._threads == 1 or len(texts) < 2:
            return [run_one(text) for text in texts]
        # Longest first: otherwise the last one may be long, and the other cores wait for it.
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i][0] + (texts[i][1] or "")))
        from concurrent.futures import ThreadPoolExecutor  # slow, and for a query in vain

        pool = ThreadPoolExecutor(min(self._threads, len(texts)), thread_name_prefix="clew-onnx")
        try:
            results = pool.map(run_one, [texts[i] for i in order])
            outputs = dict(zip(order, results, strict=True))
        finally:
            pool.shutdown(cancel_futures=True)  # an interrupt does not wait for the rest
        return [outputs[i] for i in range(len(texts))]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"


class OnnxEmbedder(OnnxModel):
    """Sentences to vectors of length 1. The graph is loaded on first use; safe across threads."""

    @property
    def dim(self) -> int:
        return self._spec.dim

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        return self._embed([self._spec.document_prefix + text for text in texts])

    def embed_query(self, text: str) -> Vector:
        row: Vector = self._embed([self._spec.query_prefix + text])[0]
        return row

    def _embed(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        tokens = [output[0] for output in self._run([(text, None) for text in texts])]
        # The first token's vector speaks for the text, or the mean: there is no padding to leave
        # out, since texts run one by one.
        first = self._spec.pooling == "cls"
        rows = np.stack([each[0] if first else each.mean(axis=0) for each in tokens])
        if rows.shape[1] != self.dim:
            raise ModelError(
                f"{self.model} gives vectors of {rows.shape[1]}, its catalogue entry says "
                f"{self.dim}: correct `dim` there"
            )
        return unit(rows)


class OnnxReranker(OnnxModel):
    """Scores how well passages answer a query, reading both together: slow and sharp."""

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        """One logit per passage, higher is better; comparable within one query only."""
        outputs = self._run([(query, passage) for passage in passages])
        return [float(output.ravel()[0]) for output in outputs]


def _tokenise(tokenizer: Tokenizer, text: str, other: str | None) -> Inputs:
    encoding = tokenizer.encode(text, other)
    return {
        "input_ids": encoding.ids,
        "attention_mask": encoding.attention_mask,
        "token_type_ids": encoding.type_ids,
    }


def _count_cores() -> int:
    """The cores this process may use, which in a container are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _open_tokenizer(model: CatalogueModel, folder: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    file = str(folder / TOKENIZER_FILE)
    tokenizer = (
        Tokenizer.from_file(file)
        if is_own(folder)
        else Tokenizer.from_buffer(read_whole(model, folder, TOKENIZER_FILE))
    )
    tokenizer.enable_truncation(model.max_tokens)
    # Some files ask to pad every text to 128 or even 512 tokens.
    tokenizer.no_padding()
    return tokenizer


def _choose_provider(device: str) -> str:
    """What runs graphs on this device."""
    import onnxruntime as ort

    known = {"cuda": "CUDAExecutionProvider", "mps": "CoreMLExecutionProvider"}
    there = ort.get_available_providers()
    if device == "auto":  # CoreML takes but a part of these graphs, so it is not chosen by itself
        return known["cuda"] if known["cuda"] in there else "CPUExecutionProvider"
    if device in known and known[device] not in there:
        raise ModelError(
            f"device = {device!r}, but this onnxruntime runs on {', '.join(there)} only: set "
            "`device` to auto or cpu, or install one that can (for CUDA: pip uninstall "
            "onnxruntime, then pip install onnxruntime-gpu)"
        )
    return known.get(device, "CPUExecutionProvider")


def _open_session(
    model: CatalogueModel, folder: Path, *, brief: bool = False, device: str = "auto"
) -> InferenceSession:
    """The graph, from the optimised copy beside it if there is one; else that copy is made.

    The copy loads faster: its weights lie in a file of their own that is mapped rather than parsed;
    vectors are identical to the bit. It is derived: it can be deleted at any time, and where it
    cannot be written all works without. Where others can write, only the very graph is opened.
    """
    import onnxruntime as ort

    # Levels beyond the extended one write graphs for this one CPU, and here they gain nothing.
    extended = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    provider = _choose_provider(device)

    def open_graph(
        place: Path | bytes, level: object = extended, **entries: str
    ) -> InferenceSession:
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        options.intra_op_num_threads = 1  # texts run side by side instead: see above
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if saved := entries.pop("saved", None):
            options.optimized_model_filepath = saved
        for entry, value in entries.items():
            options.add_session_config_entry(f"session.{entry}", value)
        graph = place if isinstance(place, bytes) else str(place / MODEL_FILE)
        return ort.InferenceSession(graph, options, providers=[provider])

    if not is_own(folder):
        return open_graph(read_whole(model, folder, MODEL_FILE))
    if provider != "CPUExecutionProvider" or len(model.files) > 2:  # weights beside the graph
        return open_graph(folder)
    # The optimised graph belongs to the runtime that made it.
    copy = folder / f"ort-{ort.__version__}-{platform.machine()}"
    # A copy that does not load is no reason to fail: the original is right beside it.
    with contextlib.suppress(Exception):
        if (copy / MODEL_FILE).is_file():
            # Less to load, a little more for each text.
            faster = {"disable_prepacking": "1"} if brief else {}
            return open_graph(copy, ort.GraphOptimizationLevel.ORT_DISABLE_ALL, **faster)
    shutil.rmtree(copy, ignore_errors=True)
    for left in folder.glob(".ort-*-*"):
        process = left.name.split("-")[1]
        if process.isdigit() and not is_running(int(process)):
            shutil.rmtree(left, ignore_errors=True)
    draft = folder / f".ort-{os.getpid()}-{threading.get_ident()}"
    try:
        draft.mkdir()
        session = open_graph(
            folder,
            saved=str(draft / MODEL_FILE),
            optimized_model_external_initializers_file_name=WEIGHTS_FILE,
            optimized_model_external_initializers_min_size_in_bytes="16384",
        )
    except Exception:  # read-only, disk full: the runtime raises its own types
        session = open_graph(folder)
    else:
        with contextlib.suppress(OSError):  # another process was quicker: theirs is as good
            flush(*draft.iterdir())
            draft.rename(copy)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return session
