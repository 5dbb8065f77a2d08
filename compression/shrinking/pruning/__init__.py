"""Kinds of pruning: of single weights (by magnitude or movement), units of layers, and rows of the embedding."""
