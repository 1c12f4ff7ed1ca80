"""What a graphics card does: passages embedded in half precision, and exact search by brute force.

    python benchmarks/gpu.py --out docs/benchmarks/gpu.md

It stands alone: PyTorch, transformers and NumPy are all it needs, so that it runs where
nothing of Clew can be installed. The encoder is src/clew/models/pytorch.py, loaded as a file; the
network has the shape of bge-small (12 layers, 384 wide, 12 heads) and random weights, which cost
the same as trained ones.

- Peak: the best of some large products of half-precision matrices of random numbers, and of copies
  on the card; what the vendor prints is not reached by anything.
- Embedding: passages of 128 tokens, and of lengths as they occur (the passages of a folder, 16 to
  256). Operations are those of the products alone, of tokens that count. The least cosine is
  that of 200 of these vectors with those of transformers itself in single precision.
- Search: 10 million vectors of 384 half-precision numbers, the best ten of each query by inner
  product, one query and 8 at a time; every row is read. The answers of 20 queries are compared
  with those of single precision, computed in pieces.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).parents[1]
LAYERS, WIDTH, HEADS, INNER, WORDS = 12, 384, 12, 1536, 30522
ROWS, BEST, BLOCK = 10_000_000, 10, 1024


def load_encoder() -> Any:
    spec = spec_from_file_location("pytorch", ROOT / "src" / "clew" / "models" / "pytorch.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def timed(run: Any, times: int) -> float:
    """Seconds of one run, the median."""
    run()
    torch.cuda.synchronize()
    found = []
    for _ in range(times):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) / 1e3)
    return float(np.median(found))


def measure_peak() -> tuple[float, float]:
    """Operations and bytes a second."""
    best = 0.0
    for size in (4096, 8192, 16384):
        a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
        best = max(best, 2 * size**3 / timed(lambda a=a, b=b: a @ b, 10))
    one = torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(one)
    return best, 2 * one.numel() / timed(lambda: other.copy_(one), 10)


def count_operations(lengths: np.ndarray) -> float:
    """Of the matrix products of a transformer over these texts."""
    per_token = LAYERS * 2 * (4 * WIDTH * WIDTH + 2 * WIDTH * INNER)
    return float(per_token * lengths.sum() + LAYERS * 4 * WIDTH * (lengths**2).sum())


def measure_embedding(passages: int) -> list[dict[str, Any]]:
    from transformers import BertConfig, BertModel

    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
    )
    network = BertModel(config, add_pooling_layer=False)
    encoders = load_encoder()
    rng = np.random.default_rng(7)
    mixed = np.clip(rng.gamma(4.0, 24.0, passages).astype(int), 16, 256)
    rows = []
    for name, lengths in (("128 tokens", np.full(passages, 128)), ("as they occur", mixed)):
        texts = [rng.integers(1000, WORDS, n).tolist() for n in lengths]
        exact = encode_exactly(network, texts[:200])
        for compiled in (False, True):
            encoder = encoders.Encoder(
                copy.deepcopy(network), device="cuda", pooling="cls", compiled=compiled
            )
            cosines = (encoder.encode(texts)[:200] * exact).sum(1)  # and what is built at first
            torch.cuda.synchronize()
            begun = time.perf_counter()
            encoder.encode(texts)
            seconds = time.perf_counter() - begun
            rows.append(
                {
                    "passages": f"{name}{', compiled' if compiled else ''}",
                    "least_cosine": float(cosines.min()),
                    "passages_per_second": passages / seconds,
                    "tokens_per_second": float(lengths.sum()) / seconds,
                    "operations_per_second": count_operations(lengths) / seconds,
                }
            )
    return rows


def encode_exactly(network: Any, texts: list[list[int]]) -> np.ndarray:
    """By transformers itself, each text alone, in single precision."""
    network = copy.deepcopy(network).float().cuda().eval()
    with torch.inference_mode():
        rows = [network(torch.tensor([t], device="cuda")).last_hidden_state[0, 0] for t in texts]
    return torch.nn.functional.normalize(torch.stack(rows), dim=1).cpu().numpy()


def nearest(rows: torch.Tensor, queries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The best of each query: scores, the best of each block of rows, then the best blocks."""
    scores = queries @ rows.T
    blocks = scores.view(len(queries), -1, BLOCK)
    best = blocks.amax(-1).topk(BEST, dim=1).indices
    few = blocks.gather(1, best[..., None].expand(-1, -1, BLOCK)).flatten(1)
    values, places = few.topk(BEST, dim=1)
    return values, best.gather(1, places // BLOCK) * BLOCK + places % BLOCK


def measure_search() -> list[dict[str, Any]]:
    torch.manual_seed(7)
    count = ROWS // BLOCK * BLOCK
    rows = torch.empty(count, WIDTH, dtype=torch.float16, device="cuda")
    for part in rows.split(1_000_000):
        part.copy_(torch.nn.functional.normalize(torch.randn(part.shape, device="cuda"), dim=1))
    queries = torch.nn.functional.normalize(torch.randn(24, WIDTH, device="cuda"), dim=1)
    found = []
    for at_once in (1, 8):
        asked = queries[:at_once].half()
        seconds = timed(lambda asked=asked: nearest(rows, asked), 30)
        read = rows.numel() * 2
        found.append(
            {
                "queries_at_once": at_once,
                "seconds": seconds,
                "bytes_per_second": read / seconds,
                "queries_per_second": at_once / seconds,
            }
        )
    same = 0
    for query in queries[:20]:
        got = set(nearest(rows, query[None].half())[1][0].tolist())
        exact = torch.cat([part.float() @ query for part in rows.split(1_000_000)])
        same += len(got & set(exact.topk(BEST).indices.tolist()))
    found[0]["same_as_single_precision"] = same / (20 * BEST)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--passages", type=int, default=98_304)
    arguments = parser.parse_args()
    operations, copied = measure_peak()
    embedding, search = measure_embedding(arguments.passages), measure_search()
    lines = [
        "# On a graphics card",
        "",
        *(__doc__ or "").split("\n\n", 1)[1].splitlines(),
        "",
        f"Machine: {torch.cuda.get_device_name()}, PyTorch {torch.__version__}. Peak as measured: "
        f"{operations / 1e12:.0f} TFLOP/s of products, {copied / 1e12:.2f} TB/s of copies.",
        "",
        "| passages | a second | tokens/s | TFLOP/s | of the peak | wanted | least cosine |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {row['passages']} | {row['passages_per_second']:,.0f} | "
            f"{row['tokens_per_second']:,.0f} | {row['operations_per_second'] / 1e12:.0f} | "
            f"{row['operations_per_second'] / operations:.0%} | ≥ 40 % | "
            f"{row['least_cosine']:.4f} |"
            for row in embedding
        ),
        "",
        "| exact search of 10 million | ms | TB/s | of the bandwidth | wanted | queries/s |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row['queries_at_once']} at once | {row['seconds'] * 1e3:.2f} | "
            f"{row['bytes_per_second'] / 1e12:.2f} | {row['bytes_per_second'] / copied:.0%} | "
            f"≥ 70 % | {row['queries_per_second']:,.0f} |"
            for row in search
        ),
        "",
        f"Of the best ten, {search[0]['same_as_single_precision']:.1%} are as in single precision.",
    ]
    numbers = {"peak": operations, "copy": copied, "embedding": embedding, "search": search}
    print("\n".join(lines), json.dumps(numbers), sep="\n")
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
