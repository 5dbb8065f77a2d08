"""Packing students into single files (.fwt), which compression.runtime reads without PyTorch."""

from compression.packing.pack import pack, pack_student, packed_sections, write_packed
from compression.packing.sections import PackedSection

__all__ = ["PackedSection", "pack", "pack_student", "packed_sections", "write_packed"]
