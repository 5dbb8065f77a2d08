"""Compress: distil a student, prune it, quantize it.

    python compress.py distill --task sst-2 --student-arch bilstm --alpha 0
    python compress.py distill prune quantize --task sst-2 --student-arch ffn --embedding-dim 25
    python compress.py quantize --task sst-2 --load-trained-model bilstm-bpe25-a0-aug-s3201976

The first words, or those after --compression-actions, are the actions: pretrain, distill, factorize, prune, quantize,
pack, export. `compress.py distill --help` shows usual flags of distill, --help-all all of them; without an action,
--help shows those of all actions.
Defaults of a student come from configs/students/<student-arch>.yaml; --help --student-arch rnn shows the RNN's.
An interrupted command resumes when it is run again.
"""

import sys

from common.cli import run_script
from common.config import parse_flags
from common.progress import show_bars
from compression.shrinking.settings import CompressSettings, defaults_for


def main() -> None:
    """Parse actions and flags, run the actions, and print where each model is."""
    words = sys.argv[1:]
    if words and not words[0].startswith("-"):
        words = ["--compression-actions", *words]
    settings = parse_flags(CompressSettings, words, __doc__, defaults_for, "%(prog)s [ACTION ...] [flags]")
    show_bars(settings.loadbar)
    from compression.shrinking.chain import compress  # PyTorch loads here, after the flags are checked

    for folder in compress(settings):
        print(f"student saved in {folder}")


if __name__ == "__main__":
    run_script(main)
