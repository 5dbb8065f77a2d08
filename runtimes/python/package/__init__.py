"""Text classifiers of 9 to 400 KB, distilled from language models.

    import featherweight

    model = featherweight.load("sst-2-12k")    # a name of the zoo, or the path of a packed file
    model.predict(["a gorgeous , witty film"])

    classifier = featherweight.Classifier(max_bytes="32k", minutes=5).fit(texts, labels)

`featherweight --help` describes the command. `featherweight/_train` has the folders of the project's repository; only
the processes of commands that train have it on their path.
"""

from ._train.compression.classifier import Classifier, load
from ._train.compression.runtime import Model, PackedError, zoo_names

__all__ = ["Classifier", "Model", "PackedError", "__version__", "load", "zoo_names"]
__version__ = "0.1.0"

Classifier.__module__ = __name__  # where a pickle looks it up


def __dir__() -> list[str]:
    return __all__
