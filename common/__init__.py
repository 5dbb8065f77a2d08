"""What every stage shares: settings, data, workspace, teachers, training loop, reports."""

import os
import sys

# Before PyTorch loads it: where a matrix lies in memory otherwise changes the last digits of MKL's products on some
# processors, and a run that goes on after a stop would not end with the bytes of one never stopped.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

# Python 3.14's standard library has a package `compression` too (see compression/__init__.py). A worker process that
# starts in another folder loads it before our root is on its path; of our packages this one is imported first.
_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "compression")  # noqa: PTH118, PTH120
if "compression" in sys.modules and _OURS not in sys.modules["compression"].__path__:
    sys.modules["compression"].__path__.insert(0, _OURS)
