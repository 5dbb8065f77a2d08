"""Common parts of all stages: settings, data, workspace, teachers, training loop, reports."""

import os
import sys

# Must be set before PyTorch loads MKL. Otherwise, on some processors, the last digits of MKL's matrix products depend
# on the matrices' addresses in memory, and a resumed run gives other bytes than an uninterrupted one.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

# Python 3.14's standard library also has a package `compression` (see compression/__init__.py). A worker process that
# starts in another folder loads it before our root is on its path. The fix is here because this package is imported
# first.
_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "compression")  # noqa: PTH118, PTH120
if "compression" in sys.modules and _OURS not in sys.modules["compression"].__path__:
    sys.modules["compression"].__path__.insert(0, _OURS)
