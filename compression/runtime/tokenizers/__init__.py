"""Tokenizers: text to ids, one file per kind. They give the same ids in training and in a packed file."""
