"""Unpacking one named file of a zip or tar archive safely.

Only the named member is read and only the target written, so an archive cannot write elsewhere.
"""

import contextlib
import errno
import gzip
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from common.errors import UserError
from common.reading import regular_file
from common.stopping import check
from common.store.files import whole_file

# Far above any GLUE file or RoBERTa; a crafted archive is refused before it fills the disk.
MAX_MEMBER_BYTES = 4 * 1024**3
_CHUNK_BYTES = 1 << 20
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    ValueError,  # impossible numbers and names
    NotImplementedError,  # compression that this Python lacks
    RuntimeError,  # encrypted members
    OSError,  # from gzip, or from zipfile, which seeks before the start of an archive whose beginning is missing
)


def unpack_member(archive: Path, member: str, target: Path) -> None:
    """Unpack one named file of a zip or tar.gz to `target`, whole or not at all.

    Raises UserError when it is missing, not a plain file (a link, a device), damaged or too large.
    """
    regular_file(archive)
    with _one_line(archive):
        try:
            if archive.name.endswith(".zip"):
                with zipfile.ZipFile(archive) as zipped:
                    _check(archive, member, zipped.getinfo(member).file_size)
                    with zipped.open(member) as source:
                        _write(source, target)
            else:
                with tarfile.open(archive, "r:*") as tarred:
                    info = tarred.getmember(member)
                    _check(archive, member, info.size)
                    source = tarred.extractfile(info) if info.isreg() else None
                    if source is None:
                        raise UserError(f"{archive}: {member} is not a plain file")
                    _write(source, target)
        except KeyError:
            raise UserError(f"{archive}: contains no {member}") from None


def check_archive(path: Path, name: str) -> bool:
    """Check an archive against the checksums in it. name: the file's final name, whose suffix gives the format.

    Returns whether the format, .zip or .gz, has checksums. Raises UserError if the archive is damaged.
    """
    with _one_line(path):
        if name.endswith(".zip"):
            with zipfile.ZipFile(path) as zipped:
                damaged = zipped.testzip()
                if damaged is not None:
                    raise zipfile.BadZipFile(f"{damaged}: bad checksum")
            return True
        if name.endswith((".gz", ".tgz")):
            with gzip.open(path) as stream:
                while stream.read(_CHUNK_BYTES):
                    check()
            return True
    return False


@contextlib.contextmanager
def _one_line(archive: Path) -> Iterator[None]:
    """Turn the errors of a damaged archive into UserErrors."""
    try:
        yield
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # such as a full disk
            raise
        raise UserError(f"{archive}: damaged or truncated archive ({error})") from error


def _check(archive: Path, member: str, size: int) -> None:
    if size > MAX_MEMBER_BYTES:
        raise UserError(f"{archive}: {member} is larger than {MAX_MEMBER_BYTES} bytes")


def _write(source: IO[bytes], target: Path) -> None:
    with whole_file(target) as partial, partial.open("wb") as file:
        while chunk := source.read(_CHUNK_BYTES):
            check()
            file.write(chunk)
