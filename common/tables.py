"""Plain-text tables, sizes in bytes and scores, as text."""

from collections.abc import Mapping, Sequence

UNITS = "1 KB is 1,000 bytes and 1 MB is 1,000,000."


def human_bytes(count: float) -> str:
    """Return a size with three digits, in decimal units: 950 -> '950 B', 446370 -> '446 KB', 1593224 -> '1.59 MB'."""
    units = ("B", "KB", "MB", "GB", "TB")
    for unit in units:
        # 999.5 would round to a fourth digit.
        if count < 999.5 or unit == units[-1]:
            break
        count /= 1000
    if unit == "B" or count >= 99.95:
        return f"{count:.0f} {unit}"
    text = f"{count:.1f}" if count >= 9.995 else f"{count:.2f}"
    return f"{text.rstrip('0').rstrip('.')} {unit}"


def scores_text(metrics: Mapping[str, float]) -> str:
    """Return the metrics of a model in one line: 'accuracy 0.6735, f1_macro 0.6627'."""
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def text_table(
    header: Sequence[str], body: Sequence[Sequence[str]], numeric: Sequence[bool] | None = None, width: int = 0
) -> str:
    """Return a plain-text table. If `width` is given and too small, the first column is shortened in the middle.

    numeric: which columns are aligned at the right; unset: all but the first.
    """
    numeric = numeric or [column > 0 for column in range(len(header))]
    lines = [list(header), *map(list, body)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    too_wide = sum(widths) + 2 * (len(widths) - 1) - width if width else 0
    if too_wide > 0:
        widths[0] = max(12, widths[0] - too_wide)
    for line in lines:
        line[0] = shortened(line[0], widths[0])
    ruled = [lines[0], ["-" * size for size in widths], *lines[1:]]
    aligned = [str.rjust if right else str.ljust for right in numeric]
    padded = ("  ".join(align(*cell) for align, *cell in zip(aligned, line, widths, strict=True)) for line in ruled)
    return "\n".join(line.rstrip() for line in padded)


def shortened(text: str, width: int) -> str:
    """Return text cut to `width` characters in the middle: names often differ at the end only (the seed, +p+q)."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return text[:head] + "…" + text[len(text) - (width - 1 - head) :]
