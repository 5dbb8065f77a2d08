"""Packing students into single files (.fwt), which compression.runtime reads without PyTorch."""

from compression.packing.pack import pack, pack_student, packed_sections

__all__ = ["pack", "pack_student", "packed_sections"]
