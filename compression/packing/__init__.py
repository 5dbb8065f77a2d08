"""Packing students into single files (.fwt), which compression.runtime reads without PyTorch."""

from compression.packing.pack import pack_student, packed_parts, packed_size, write_packed
from compression.packing.parts import PackedPart

__all__ = ["PackedPart", "pack_student", "packed_parts", "packed_size", "write_packed"]
