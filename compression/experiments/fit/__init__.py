"""`experiment.py fit`: from a file with texts and labels to a packed file, in a given time."""
