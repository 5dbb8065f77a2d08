"""Comparing models, families of them, or experiments: paired over seeds and over test rows."""
