"""Quantizers, quantization-aware training, and the allocation of bits."""
