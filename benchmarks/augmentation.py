"""Sentences augmented per second, compared with a loop over single words, and the memory needed.

    python benchmarks/augmentation.py --text shared/glue/SST-2/train.tsv
    python benchmarks/augmentation.py --memory

The loop works like TinyBERT's data_augmentation.py: for every word of every sentence, it runs the whole model, the
output layer at every token, and an argsort of the vocabulary at the masked token. Both ways run in turn in this
process on the same sentences, and their rows must be equal. Without --masked-lm, the model is the packaged MiniLM with
an untrained output layer: its predictions are meaningless, but the time is the same.
"""

import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("MKL_CBWR", "AUTO")
os.environ.setdefault("MKL_DYNAMIC", "FALSE")
sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch
from shared import make_parser, memory_above, only_memory, rows_of, sentences, write_rows, write_tiny_bert

from common.progress import show_bars
from common.teachers.huggingface.masked_lm import HuggingFaceMaskedLM
from common.teachers.huggingface.pretrained import quiet_transformers, resolve
from compression.augmentation.augment import CandidateSource, Variation, augment, open_variants
from compression.augmentation.candidates import MaskedCandidates
from compression.augmentation.glove import Neighbours, load_glove

K, N, P = 15, 20, 0.4
Clock = Callable[[], float]


class PlainCandidates:
    """Finds the k most likely replacements of a word, one word of one sentence at a time."""

    def __init__(self, model: HuggingFaceMaskedLM, k: int) -> None:
        self.model, self.k = model, k
        self.words = model.words()
        self.order = {word: i for i, word in reversed(list(enumerate(self.words)))}

    def find(self, texts: list[str], words: list[list], advance: Any) -> list[dict]:
        """Return the same as MaskedCandidates.find."""
        by_text: list[dict] = [{} for _ in texts]
        for text, spans, candidates in zip(texts, words, by_text, strict=True):
            for span in spans:
                pieces = self.model.encode([text])[0]
                if span in pieces.spans:
                    candidates[span] = self._one(pieces.ids, pieces.spans.index(span), text[slice(*span)].lower())
        return by_text

    def _one(self, ids: list[int], index: int, word_there: str) -> list[str]:
        masked = [*ids[:index], self.model.mask_id, *ids[index + 1 :]]
        with torch.inference_mode():
            logits = self.model.model(input_ids=torch.tensor([masked])).logits[0, index]
        chosen: list[str] = []
        for piece in torch.argsort(logits, descending=True)[: 20 * self.k].tolist():
            word = self.words[piece]
            if len(word) > 1 and word not in (word_there, self.words[ids[index]]):
                chosen.append(word)
                if len(chosen) == self.k:
                    break
        return sorted(chosen, key=self.order.__getitem__)


class Counted:
    """Wraps a source of candidates and counts the masked words, on which the cost of a sentence depends."""

    def __init__(self, source: PlainCandidates | MaskedCandidates) -> None:
        self.source, self.words = source, 0

    def find(self, texts: list[str], words: list[list], advance: Any) -> list[dict]:
        """Return the same as MaskedCandidates.find."""
        candidates = self.source.find(texts, words, advance)
        self.words += sum(map(len, candidates))
        return candidates


def load_model(folder: str | None) -> HuggingFaceMaskedLM:
    """Return a masked language model, by default MiniLM with an untrained output layer."""
    device = torch.device("cpu")
    if folder:
        return HuggingFaceMaskedLM.load(folder, device)
    transformers, source = quiet_transformers(), resolve("minilm")[0]
    torch.manual_seed(1)
    model = transformers.AutoModelForMaskedLM.from_pretrained(source)
    return HuggingFaceMaskedLM(model, transformers.AutoTokenizer.from_pretrained(source), device)


def speed(
    text: Path | None, masked_lm: str | None, rounds: int, plain_rows: int, our_rows: int, clock: Clock
) -> dict[str, Any]:
    """Time both ways in turn: ours on parts of `our_rows` rows, the loop on `plain_rows` of each. Returns rates."""
    model, neighbours = load_model(masked_lm), Neighbours(load_glove(None), K)
    how = Variation(variants=N, replace_probability=P, candidates=K, seed=1)
    texts = sentences(text)
    ways = {"plain": PlainCandidates(model, K), "ours": MaskedCandidates(model, K)}
    seconds, words = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0)
    equal = rows = 0
    for number in range(-1, rounds):  # the first round warms up
        part = rows_of(texts[(number + 1) * our_rows :], our_rows if number >= 0 else plain_rows)
        # Evenly spaced in order of length, so that the loop's sentences are as long as ours on average.
        few = part.take(np.argsort([len(text) for text in part.sentence1])[:: len(part) // plain_rows][:plain_rows])
        made = {}
        for name, some in (("plain", few), ("ours", part)):
            counted = Counted(ways[name])
            start = clock()
            made[name] = augment(some, 0, CandidateSource(counted, neighbours), how, set())
            if number >= 0:
                seconds[name] += clock() - start
                words[name] += counted.words
        ours = augment(few, 0, CandidateSource(ways["ours"], neighbours), how, set()).sentence1
        equal += sum(a == b for a, b in zip(ours, made["plain"].sentence1, strict=True))
        rows += len(ours)
    per_sentence = words["ours"] / (rounds * our_rows)
    # For sentences with equally many words.
    rates = {name: words[name] / seconds[name] / per_sentence for name in seconds}
    if equal < rows:
        raise SystemExit(f"error: {rows - equal} of {rows} rows differ")
    return {
        "sentences_per_second": rates,
        "ratio": rates["ours"] / rates["plain"],
        "masked_words_per_sentence": per_sentence,
        "rows_compared_and_equal": rows,
        "threads": torch.get_num_threads(),
    }


def memory(text: Path | None, rows: int) -> dict[str, int]:
    """Augment with a tiny model until about `rows` rows are written. Returns the bytes held above the loaded models."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tiny_bert(folder / "model")
        source = write_rows(folder / "train.parquet", sentences(text), rows // N)
        how = Variation(variants=N, replace_probability=P, candidates=K, seed=1)
        work = functools.partial(open_variants, how, str(folder / "model"), None, (), True, folder)
        return memory_above(source, folder / "augmented.parquet", work)


def main() -> None:
    """Parse, run, print."""
    parser = make_parser(__doc__)
    parser.add_argument("--masked-lm", help="folder or name of a masked language model of Hugging Face's")
    parser.add_argument("--plain-rows", type=int, default=40, help="sentences of a turn for the plain loop")
    args = parser.parse_args()
    show_bars(sys.stderr.isatty())
    if only_memory(args, memory):
        return
    clock = time.process_time if args.cpu_time else time.perf_counter
    result = speed(args.text, args.masked_lm, args.rounds, args.plain_rows, args.rows, clock)
    lines = [f"{name:>5}: {rate:8.1f} sentences/s" for name, rate in result["sentences_per_second"].items()]
    lines += [f"ratio: {result['ratio']:8.1f}", f"rows compared, all equal: {result['rows_compared_and_equal']}"]
    print(json.dumps(result, indent=2) if args.json else "\n".join(lines))


if __name__ == "__main__":
    main()
