"""Quantizers, the training that is aware of them, and the choice of their bits."""
