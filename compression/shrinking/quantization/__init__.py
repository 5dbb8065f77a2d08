"""Quantizers, quantization.builder training, and the allocation of bits."""
