"""Unpacking one named file of a zip or tar archive safely.

Only the named member is read and only the target written, so an archive cannot write elsewhere.
"""

import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO

from common.errors import UserError
from common.store.files import whole_file

# Far above any GLUE file or RoBERTa; a crafted archive is refused before it fills the disk.
MAX_MEMBER_BYTES = 4 * 1024**3


def unpack_member(archive: Path, member: str, target: Path) -> None:
    """Unpack one named file of a zip or tar.gz to `target`, whole or not at all.

    Raises UserError when it is missing, not a plain file (a link, a device), damaged or too large.
    """
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
        raise UserError(f"{archive}: holds no {member}") from None
    except FileNotFoundError:
        raise UserError(f"{archive}: no such file") from None
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        # The last two: compression this Python lacks, and encrypted members.
        raise UserError(f"{archive}: damaged or truncated archive ({error})") from error
    except OSError as error:
        if error.errno is not None:  # the system's: a full disk, say
            raise
        raise UserError(f"{archive}: damaged or truncated archive ({error})") from error  # gzip's


def _check(archive: Path, member: str, size: int) -> None:
    if size > MAX_MEMBER_BYTES:
        raise UserError(f"{archive}: {member} is larger than {MAX_MEMBER_BYTES} bytes")


def _write(source: IO[bytes], target: Path) -> None:
    with whole_file(target) as partial, partial.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
