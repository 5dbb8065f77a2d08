"""Low-rank factorisation."""

from typing import Any

from common.errors import UserError


def suffix(settings: Any) -> str:
    """Suffix."""
    return "+f"


def apply(work: Any) -> dict[str, Any]:
    """Not there yet."""
    raise UserError("factorize is not there yet")
