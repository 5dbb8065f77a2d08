"""Text classifiers of 10 to 400 KB, distilled from language models.

    import featherweight

    model = featherweight.load("sst-2-12k")    # a name of the zoo, or the path of a packed file
    model.predict(["a gorgeous , witty film"])

`featherweight --help` describes the command. `featherweight/_train` has the folders of the project's repository; only
the processes of commands that train have it on their path.
"""

from __future__ import annotations

import os

from ._train.compression.runtime import Model, PackedError, zoo_names
from ._train.compression.runtime import load as _load_in_numpy

__all__ = ["Model", "PackedError", "__version__", "load", "zoo_names"]
__version__ = "0.1.0"


def load(model: str | os.PathLike[str]) -> Model:
    """Return the model of a packed file, given by its path or by its name in the zoo (sst-2-12k).

    The C runtime answers, or NumPy where it cannot be loaded or does not read the model. Raises PackedError for an
    unknown name, or if the file is malformed.
    """
    try:
        from ._train.compression.runtime.native import load_native  # ctypes is missing on some systems

        return load_native(model)
    except (ImportError, PackedError):
        return _load_in_numpy(model)


def __dir__() -> list[str]:
    return __all__
