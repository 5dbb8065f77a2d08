"""Downloads, resumable and checked before use, and data packages."""

from __future__ import annotations

import importlib.util
import logging
import re
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from common.data.archives import check_archive
from common.errors import UserError
from common.progress import counter, say
from common.stopping import at_once
from common.store.files import file_sha256, sync, write_text
from common.store.locks import only_one

if TYPE_CHECKING:
    import requests

_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = (20, 60)
_SHA256 = re.compile("[0-9a-f]{64}")


def package_folder(package: str, missing: str) -> Path:
    """Return the folder of an installed package that ships files. Raises UserError with the message `missing`."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # a parent package is missing, or the name is not valid
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise UserError(missing)
    return Path(next(iter(spec.submodule_search_locations)))


def fetch(url: str, sha256: str | None, folder: Path, instead: str = "--data-dir takes a local copy") -> Path:
    """Download `url` into `folder` unless an undamaged copy is there. Returns the file's path.

    A stopped download stays as NAME.partial and can be resumed; it is renamed once its checksum is right. If no
    checksum is published (None), the file is checked as far as the server and its format allow (see `_check`), and its
    own checksum is saved as NAME.sha256 and required from then on. If another process is downloading the file, this
    call waits for it. `instead` is the hint for users without network. Raises UserError when the address cannot be
    reached or the file is not the expected one.
    """
    target = folder / url.rsplit("/", 1)[-1]
    if _is_right(target, sha256):
        return target
    with only_one(target, target.name, wait=True), at_once():
        if _is_right(target, sha256):  # another process has downloaded it
            return target
        if target.exists():
            say(f"{target}: damaged, or not the expected file; downloading it again")
        partial, recorded = _sibling(target, "partial"), _recorded(target)
        size, promised = _download(url, partial, instead)
        downloaded = file_sha256(partial)
        try:
            if sha256 is None:
                _check(partial, target.name, downloaded, size, promised)
            elif downloaded != sha256:
                raise UserError("the checksum differs")
        except UserError as error:
            partial.unlink()
            raise UserError(f"{url}: the download is not the expected file ({error}); try again") from None
        if sha256 is None and recorded not in (None, downloaded):
            partial.unlink()
            raise UserError(
                f"{url}: not the file that was downloaded before (the checksum differs); to accept it, remove "
                f"{_sibling(target, 'sha256')}"
            )
        sync(partial)
        if sha256 is None:
            write_text(_sibling(target, "sha256"), f"{downloaded}\n")
        partial.replace(target)
    return target


def _sibling(target: Path, suffix: str) -> Path:
    return target.with_name(f"{target.name}.{suffix}")


def _recorded(target: Path) -> str | None:
    """Return the checksum saved at the first download."""
    file = _sibling(target, "sha256")
    return file.read_text(encoding="utf-8").strip() if file.exists() else None


def _is_right(target: Path, sha256: str | None) -> bool:
    """Return whether the file exists and has this checksum or, if None, the saved one."""
    expected = _recorded(target) if sha256 is None else sha256
    return expected is not None and target.is_file() and file_sha256(target) == expected


def _check(path: Path, name: str, sha256: str, size: int, promised: str) -> None:
    """Check a file without a published checksum against the server's size and checksum, or an archive's own checksums.

    Raises UserError if one of them differs, or if there is nothing to check against.
    """
    if size not in (-1, path.stat().st_size):
        raise UserError(f"{path.stat().st_size:,} bytes of {size:,}")
    if promised not in ("", sha256):
        raise UserError("its checksum is not that of the server")
    if not check_archive(path, name) and size == -1 and not promised:
        raise UserError("the server gives neither its size nor its checksum")


def _download(url: str, partial: Path, instead: str) -> tuple[int, str]:
    """Download the rest of `partial`. Returns what `_promise` does.

    Broken connections are resumed as long as each attempt adds some bytes.
    """
    # Imported here: most commands download nothing.
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.exceptions import HTTPError
    from urllib3.util import Retry

    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # it logs each retry
    retry = Retry(total=3, backoff_factor=0.5, status_forcelist=(500, 502, 503, 504), allowed_methods=("GET",))
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=retry))
        while True:
            before = _size(partial)
            try:
                return _continue(session, url, partial)
            except (requests.RequestException, HTTPError) as error:
                if _size(partial) <= before:
                    raise UserError(f"{url}: cannot be downloaded ({type(error).__name__}); {instead}") from error


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _continue(session: requests.Session, url: str, partial: Path) -> tuple[int, str]:
    """Request the missing bytes. Starts again if the server sends the whole file, or if the file has changed."""
    tag_file = _sibling(partial, "etag")
    done = _size(partial)
    tag = tag_file.read_text(encoding="utf-8") if done and tag_file.exists() else ""
    # With compression, byte ranges would refer to the compressed stream, not to the file.
    headers = {"Accept-Encoding": "identity"}
    if tag:
        headers |= {"Range": f"bytes={done}-", "If-Range": tag}
    with session.get(url, headers=headers, stream=True, timeout=_TIMEOUT_SECONDS) as answer:
        resumed = answer.status_code == HTTPStatus.PARTIAL_CONTENT
        if answer.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or (resumed and _start(answer) != done):
            partial.unlink()  # it is longer than the file, or the server sent other bytes
            return _continue(session, url, partial)
        answer.raise_for_status()
        if not resumed:
            done = 0
            # A weak ETag does not identify bytes; the file's date is used instead.
            tag = answer.headers.get("ETag", "")
            write_text(tag_file, tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified", ""))
        size, checksum = _promise(answer, done)
        total = max(size, done)
        with partial.open("ab" if done else "wb") as file, counter(partial.stem, total, done, unit="B") as advance:
            for chunk in answer.iter_content(_CHUNK_BYTES):
                file.write(chunk)
                advance(len(chunk))
    tag_file.unlink(missing_ok=True)
    return size, checksum


def _start(answer: requests.Response) -> int:
    """Return the position of a partial response's first byte, -1 if it is not given (RFC 9110, section 14.4)."""
    match = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return int(match[1]) if match else -1


def _promise(answer: requests.Response, done: int) -> tuple[int, str]:
    """Return size and SHA-256 as the server states them, else -1 and "". A hub states them when it redirects."""
    length = answer.headers.get("Content-Length", "")
    size = int(length) + done if length.isdecimal() else -1
    linked = [redirect.headers for redirect in (*answer.history, answer)]
    sizes = [headers.get("X-Linked-Size", "") for headers in linked]
    tags = [headers.get("X-Linked-Etag", "") for headers in linked] + [answer.headers.get("ETag", "")]
    checksums = [tag.strip('"') for tag in tags if _SHA256.fullmatch(tag.strip('"'))]
    return next((int(text) for text in sizes if text.isdecimal()), size), next(iter(checksums), "")
