"""The exception for mistakes that the user can correct."""


class UserError(Exception):
    """A mistake in flags, settings or files. Shown as one line; the command exits with code 2."""


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the name of its class if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
