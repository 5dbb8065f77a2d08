"""Vectors of texts by a frozen encoder: features of a linear teacher (common.teachers.linear)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from common.data.split import Split
from common.devices import autocast, cpu_cores, threads
from common.progress import Advance, nothing
from common.stopping import check_time
from common.teachers.base import SCORING_BATCH
from common.teachers.huggingface.pretrained import check_complete, load_pretrained, within_positions
from common.teachers.linear import compared
from common.training.batching import sorted_batches

VectorsOf = Callable[[Sequence[str], Advance], np.ndarray]
"""Texts -> their vectors, float16 [n, dim]."""


class FrozenEncoder:
    """An encoder of Hugging Face's whose weights are not trained."""

    def __init__(self, source: str | Path, device: torch.device, dtype: torch.dtype, max_tokens: int) -> None:
        """Load an encoder by folder or name. Raises UserError if something cannot be loaded or lacks tensors."""
        self.tokenizer, self.model, new = load_pretrained(source, "AutoModel", what="encoder")
        check_complete(source, self.model, new)
        on_cpu = device.type == "cpu"
        self.model.to(device, dtype if on_cpu else torch.float32).eval()
        self.device, self.dtype = device, torch.float32 if on_cpu else dtype
        self.max_tokens = within_positions(max_tokens, self.model)

    def vectors(self, texts: Sequence[str], advance: Advance = nothing) -> np.ndarray:
        """Return the mean of the last layer over each text's tokens, with length 1, float16 [n, dim].

        `advance` is called with the number of texts done since its last call.
        """
        tokens = self.tokenizer(list(texts), truncation=True, max_length=self.max_tokens) if texts else {}
        rows = [dict(zip(tokens, row, strict=True)) for row in zip(*tokens.values(), strict=True)]
        lengths = np.array([len(row["input_ids"]) for row in rows], np.int64)
        vectors = np.empty((len(texts), self.model.config.hidden_size), np.float16)

        def read(batch: np.ndarray) -> int:
            check_time()
            with torch.inference_mode(), autocast(self.dtype, self.device):
                padded = self.tokenizer.pad([rows[row] for row in batch], return_tensors="pt").to(self.device)
                states = self.model(**padded).last_hidden_state.float()
                mask = padded["attention_mask"].unsqueeze(-1)
                mean = (states * mask).sum(1) / mask.sum(1)
                vectors[batch] = torch.nn.functional.normalize(mean, dim=1).half().cpu().numpy()
            return len(batch)

        # One batch a core: threads that share a short batch mostly wait for each other if another program is running.
        workers = cpu_cores() if self.device.type == "cpu" else 1
        with threads(1), ThreadPoolExecutor(workers) as pool:
            for done in pool.map(read, sorted_batches(lengths, SCORING_BATCH)):
                advance(done)
        return vectors


class FrozenVectors:
    """The vectors of rows as features. `vectors_of`: `FrozenEncoder.vectors`, or a cache of these."""

    strength = 10.0

    def __init__(self, vectors_of: VectorsOf) -> None:
        self.vectors_of = vectors_of

    def fit(self, train: Split) -> np.ndarray:
        """Return the features of train: there is nothing to learn."""
        return self(train)

    def __call__(self, split: Split, advance: Advance = nothing) -> np.ndarray:
        """Return the features of each row, float32 [n, features]; for pairs, those of `compared`.

        Every text is read once: in pairs, many occur several times.
        """
        columns = split.sentences()
        index = {
            text: number for number, text in enumerate(dict.fromkeys(text for column in columns for text in column))
        }
        vectors = self.vectors_of(list(index), advance).astype(np.float32)
        return compared([vectors[[index[text] for text in column]] for column in columns])
