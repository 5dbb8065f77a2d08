"""The exception for mistakes that the user can correct."""


class UserError(Exception):
    """A mistake in flags, settings or files. Shown as one line; the command exits with code 2."""
