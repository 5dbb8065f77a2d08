"""Analyse a saved model, teacher or student: parameters, sizes on disk, weights and pictures of them.

    python analyze.py --task sst-2 --model-name bilstm-bpe25-a0-aug-s3201976+p+q
    python analyze.py --task sst-2 --model-name minilm --weight-hist --pie-chart --save-pdf
    python analyze.py --task sst-2 --model-name minilm --weight-thresholds --named-params --json
    python analyze.py --task qqp --arch glue-glove --pie-chart

Without a flag that names an analysis, it prints --model-size, --model-disk-size and --theoretical-size.
"""

from common.cli import print_json, run_script
from common.config import parse_flags
from common.progress import show_bars
from compression.analysis.settings import AnalyzeSettings


def main() -> None:
    """Parse flags, analyse the model, and print the results."""
    settings = parse_flags(AnalyzeSettings, None, __doc__)
    show_bars(settings.loadbar)
    from compression.analysis.analyze import analyze  # PyTorch loads here, after the flags are checked
    from compression.analysis.text import describe

    result = analyze(settings)
    if settings.json_:
        print_json(result)
    else:
        print(describe(result))


if __name__ == "__main__":
    run_script(main)
