"""Fetching archives: official address, checksum before use, whole or not at all, members unpacked safely."""

import zipfile
import zlib
from pathlib import Path

import pooch
import requests

from common.errors import UserError
from common.workspace import whole_file

# Far above any GLUE file; a crafted archive is refused before it fills the disk.
MAX_MEMBER_BYTES = 2 * 1024**3


def fetch(url: str, sha256: str, folder: Path) -> Path:
    """Download `url` into `folder` unless a file with that checksum is there. Returns its path.

    pooch downloads to a temporary name and moves the file into place only when the checksum holds.
    Raises UserError when the address cannot be reached or the checksum does not match.
    """
    name = url.rsplit("/", 1)[-1]
    try:
        return Path(pooch.retrieve(url, f"sha256:{sha256}", fname=name, path=folder, progressbar=True))
    except requests.RequestException as error:
        raise UserError(
            f"{url}: cannot be downloaded ({type(error).__name__}); --data-dir takes a local copy"
        ) from error
    except ValueError as error:
        raise UserError(f"{url}: the download is not the file expected (checksum differs); try again") from error


def unpack_member(archive: Path, member: str, target: Path) -> None:
    """Unpack one named file of a zip to `target`. Raises UserError when it is missing, damaged or too large.

    Only the named member is read and only `target` is written, so names inside the archive cannot reach other places.
    """
    try:
        with zipfile.ZipFile(archive) as zipped:
            if zipped.getinfo(member).file_size > MAX_MEMBER_BYTES:
                raise UserError(f"{archive}: {member} is larger than {MAX_MEMBER_BYTES} bytes")
            with whole_file(target) as partial:
                partial.write_bytes(zipped.read(member))
    except KeyError:
        raise UserError(f"{archive}: holds no {member}") from None
    except FileNotFoundError:
        raise UserError(f"{archive}: no such file") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        # The last two: compression this Python lacks, and encrypted members.
        raise UserError(f"{archive}: damaged or truncated archive ({error})") from error
