"""The one exception type that means "the user can mend this"."""


class UserError(Exception):
    """A mistake in flags, settings or files. Shown as one line; the command exits with code 2."""
