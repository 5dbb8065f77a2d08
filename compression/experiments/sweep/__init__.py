"""Sweeps: a grid of runs over settings and seeds, done once each, resumable, and reported together."""
