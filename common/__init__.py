"""Common parts of all stages: settings, data, workspace, teachers, training loop, reports."""

import os
import sys

# Set before PyTorch loads MKL, whose products on some processors otherwise depend, in their last digits, on a matrix's
# address in memory: a resumed run would not give the same bytes as an uninterrupted one.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

# Python 3.14's standard library has a package `compression` too (see compression/__init__.py). A worker process that
# starts in another folder loads it before our root is on its path; of our packages this one is imported first.
_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "compression")  # noqa: PTH118, PTH120
if "compression" in sys.modules and _OURS not in sys.modules["compression"].__path__:
    sys.modules["compression"].__path__.insert(0, _OURS)
