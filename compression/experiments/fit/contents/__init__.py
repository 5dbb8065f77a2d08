"""Contents of a user's file: which columns are texts and labels, and what was guessed or left out."""
