"""What every stage shares: settings, data, workspace, teachers, training loop, reports."""

import os

# Before PyTorch loads it: where a matrix lies in memory otherwise changes the last digits of MKL's products on some
# processors, and a run that goes on after a stop would not end with the bytes of one never stopped.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
