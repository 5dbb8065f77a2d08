"""Tokenizers: text to ids, one file a kind. Each gives the same ids in training as in a packed file."""
