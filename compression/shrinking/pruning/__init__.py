"""What pruning removes: single weights (magnitude, movement), units of layers, and rows of embeddings no text needs."""
