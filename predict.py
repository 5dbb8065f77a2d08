"""Classify text with any model: a teacher, a student, a packed file or a name of the zoo (which need no PyTorch).

    python predict.py --model ffn-hash25-a0-aug-s3201976 --input reviews.txt
    python predict.py --model ffn.fwt --input reviews.csv --columns review --output classified.csv
    cat reviews.jsonl | python predict.py --model ffn.fwt --format jsonl
    python predict.py --model sst-2-12k
    python predict.py --model ffn.fwt --top 3 --min-probability 0.6 --explain

The output has a label and each label's probability for every text, in the order of the input: in tables and JSONL as
additional columns or fields. In line input, every line is a text, even an empty one; a pair is a line with a tab
between its texts. Characters of a text after the first 200,000 are not read. On a terminal, without --input, it
prompts.
"""

import sys

from common.cli import run_script
from common.config import parse_flags
from common.progress import show_bars
from compression.inference.predict import PredictSettings, predict

INTERRUPTED = 130


def main() -> None:
    """Parse flags and classify the input."""
    settings = parse_flags(PredictSettings, None, __doc__)
    show_bars(False)
    try:
        predict(settings)
    except KeyboardInterrupt:  # nothing was saved to resume
        print("error: interrupted", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    run_script(main)
