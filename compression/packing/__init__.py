"""Packing students into single files (.fwt), which compression.runtime reads without PyTorch."""

from compression.packing.calibration import fit_temperature
from compression.packing.pack import pack, pack_student, packed_sections

__all__ = ["fit_temperature", "pack", "pack_student", "packed_sections"]
