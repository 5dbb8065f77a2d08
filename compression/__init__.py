"""Students and their compression: embeddings, distillation, pruning and quantization.

In a notebook `import compression` gives the functions of compression/api.py, such as `compression.distill`.
"""

import importlib
import pkgutil
from typing import Any

# From Python 3.14 on the standard library has a package of this name, and gzip, bz2, lzma, shutil and tarfile import
# modules of it. With our root first on the path they get this package: its search path goes on with that folder.
__path__ = pkgutil.extend_path(__path__, __name__)

_OF_API = ("compress", "distill", "evaluate", "finetune", "fit", "pack", "preprocess", "prune", "quantize")
__all__ = ["Classifier", *_OF_API]


def __getattr__(name: str) -> Any:
    """Return `Classifier`, or a function of api.py, which is loaded at its first use: the runtime needs NumPy only."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "api" if name in _OF_API else "classifier"
    return getattr(importlib.import_module(f"compression.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
