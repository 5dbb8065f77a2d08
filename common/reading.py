"""Checks of input files: only regular files are read as data, in an encoding that Python knows."""

import codecs
import os
import stat
from pathlib import Path
from typing import Annotated

import pydantic

from common.errors import UserError, first_line

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def regular_file(path: Path, hint: str = "") -> Path:
    """Return a path, checked to be a regular file or a link to one. hint: follows the message about a missing file.

    Raises UserError for a missing file, and for a folder, pipe, device or socket, whose reading may never end.
    """
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path}: no such file{hint}") from None
    except (OSError, ValueError) as error:  # a cycle of links, no permission, too long a name; a NUL in it
        raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if kind != stat.S_IFREG:
        raise UserError(f"{path}: {_KINDS.get(kind, 'a special file')}, not a file with data{hint}")
    return path


def unreadable(path: Path, error: Exception, kind: str = "a Parquet file") -> UserError:
    """Return the UserError for a file that could not be read: the system's reason if there is one, else it is damaged.

    kind: what the file should be. Libraries raise OSErrors without a number for wrong content.
    """
    if isinstance(error, OSError) and error.errno:
        return UserError(f"{path}: cannot be read ({os.strerror(error.errno)})")
    return UserError(f"{path}: damaged, or not {kind} ({first_line(error)})")


_ASCII = "".join(map(chr, range(128)))


def _known(name: str) -> str:
    try:
        ascii_stays = _ASCII.encode(name) == _ASCII.encode()
    except (LookupError, ValueError):
        raise ValueError("not an encoding of texts that Python knows; usual ones are utf-8 and windows-1252") from None
    if not ascii_stays:
        raise ValueError("an encoding of ASCII and more; convert others, such as UTF-16 (iconv -f UTF-16 -t UTF-8)")
    return codecs.lookup(name).name


Encoding = Annotated[str, pydantic.AfterValidator(_known)]
"""Type of the name of a file's encoding, in which ASCII is the same: lines are found, and cells separated, by it."""
UTF_8 = "utf-8"
