"""Write the sentences and clauses of SquadShifts' Amazon reviews, for a teacher of sentiment to label.

    python zoo/texts/amazon_reviews.py ../shared/qa/train.json

writes amazon-reviews.parquet next to this file. Words and signs are separated by spaces and lower-cased, as in SST-2,
whose train rows are sentences and phrases as well. The reviews are by Miller et al. (2020), CC BY 4.0.
"""

import argparse
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

OUT = Path(__file__).with_name("amazon-reviews.parquet")
SENTENCE_WORDS, CLAUSE_WORDS = range(2, 41), range(2, 16)
TOKEN = re.compile(r"n't\b|'(?:s|re|ve|ll|d|m)\b|\w+(?:-\w+)*?(?=n't\b)|\w+(?:[-.]\w+)*|\.\.\.|[^\w\s]")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[a-z][.!?])(?=[A-Z])|\n+")
CLAUSE_END = re.compile(r" (?:,|;|:|-|\(|\)|and|but|because|so|which|that) ")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, their tokens separated by spaces."""
    for part in SENTENCE_END.split(text):
        sentence = " ".join(TOKEN.findall(part.lower().replace("\u2019", "'").replace("`", "'")))
        if len(sentence.split()) in SENTENCE_WORDS:
            yield sentence


def clauses(sentence: str) -> Iterator[str]:
    """Yield the parts of a sentence between its commas and conjunctions."""
    for clause in CLAUSE_END.split(sentence):
        if clause != sentence and len(clause.split()) in CLAUSE_WORDS:
            yield clause


def main() -> None:
    """Read SQuAD's JSON and write the distinct sentences and clauses in random order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=Path, help="a file of SquadShifts in SQuAD's form, with Amazon_Reviews articles")
    articles = json.loads(parser.parse_args().json.read_bytes())["data"]
    reviews = [article for article in articles if article.get("title", "").startswith("Amazon")]
    whole = [part for article in reviews for text in article["paragraphs"] for part in sentences(text["context"])]
    rows = list(dict.fromkeys([*whole, *(clause for sentence in whole for clause in clauses(sentence))]))
    random.Random(1).shuffle(rows)
    pq.write_table(pa.table({"sentence": rows}), OUT, compression="zstd", compression_level=22, use_dictionary=False)
    print(f"{OUT}: {len(rows):,} rows, {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
