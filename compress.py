"""Compress: distil a student, prune it, quantize it.

    python compress.py --task sst-2 --compression-actions distill --student-arch bilstm --alpha 0
    python compress.py --task sst-2 --compression-actions distill prune quantize --student-arch ffn --embedding-dim 25
    python compress.py --task sst-2 --compression-actions quantize --load-trained-model bilstm-bpe25-a0-aug-s3201976

Defaults of a student come from configs/students/<student-arch>.yaml; --help --student-arch rnn shows the RNN's.
An interrupted command resumes when it is run again.
"""

from common.cli import run_script
from common.config import parse_flags
from common.progress import show_bars
from compression.shrinking.settings import CompressSettings, defaults_for


def main() -> None:
    """Parse flags, run the actions, and print where each model is."""
    settings = parse_flags(CompressSettings, None, __doc__, defaults_for)
    show_bars(settings.loadbar)
    from compression.shrinking.chain import compress  # PyTorch loads here, after the flags are checked

    for folder in compress(settings):
        print(f"student saved in {folder}")


if __name__ == "__main__":
    run_script(main)
