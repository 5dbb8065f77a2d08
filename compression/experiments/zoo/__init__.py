"""The zoo: packed files that come with the project, each with a card."""
