"""Files from elsewhere: downloads, resumable and used only after their checksum is verified, and data packages."""

from __future__ import annotations

import importlib.util
import logging
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import UserError
from common.progress import counter
from common.store.files import file_sha256, write_text

if TYPE_CHECKING:
    import requests

_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = (20, 60)


def package_folder(package: str, missing: str) -> Path:
    """Return the folder of an installed package that ships files. Raises UserError with the message `missing`."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(missing)
    return Path(next(iter(spec.submodule_search_locations)))


def fetch(url: str, sha256: str | None, folder: Path, instead: str = "--data-dir takes a local copy") -> Path:
    """Download `url` into `folder` unless a file with that checksum is there. Returns its path.

    A stopped download stays as NAME.partial and resumes; it gets its name when its checksum is right. Where no checksum
    is published (None), that of the first download is kept as NAME.sha256 and required from then on. `instead` is the
    hint for users without network.
    Raises UserError when the address cannot be reached or the checksum does not match.
    """
    target = folder / url.rsplit("/", 1)[-1]
    recorded, partial = (target.with_name(f"{target.name}.{suffix}") for suffix in ("sha256", "partial"))
    if sha256 is None and recorded.exists():
        sha256 = recorded.read_text(encoding="utf-8").strip()
        if target.exists() and file_sha256(target) != sha256:
            raise UserError(f"{target}: changed since it was downloaded; remove it to fetch it again")
    if sha256 is not None and target.exists() and file_sha256(target) == sha256:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    _download(url, partial, instead)
    downloaded = file_sha256(partial)
    if sha256 is not None and downloaded != sha256:
        partial.unlink()
        raise UserError(f"{url}: the download is not the expected file (the checksum differs); try again")
    partial.replace(target)
    if sha256 is None:
        write_text(recorded, f"{downloaded}\n")
    return target


def _download(url: str, partial: Path, instead: str) -> None:
    """Download the rest of `partial`. A connection that breaks is resumed as long as each attempt adds some bytes."""
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


def _continue(session: requests.Session, url: str, partial: Path) -> None:
    """Request the missing bytes. Where the server sends the whole file, or it changed there, start again."""
    tag_file = partial.with_name(f"{partial.name}.etag")
    done = _size(partial)
    tag = tag_file.read_text(encoding="utf-8") if done and tag_file.exists() else ""
    # Byte ranges of a compressed stream would not be those of the file.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-", "If-Range": tag} if tag else {})
    with session.get(url, headers=headers, stream=True, timeout=_TIMEOUT_SECONDS) as answer:
        if answer.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            partial.unlink()  # longer than the file is now
            return _continue(session, url, partial)
        answer.raise_for_status()
        if answer.status_code != HTTPStatus.PARTIAL_CONTENT:
            done = 0
            # A weak ETag does not identify bytes; the date of the file stands in for it.
            tag = answer.headers.get("ETag", "")
            write_text(tag_file, tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified", ""))
        total = done + int(answer.headers.get("Content-Length", 0))
        with partial.open("ab" if done else "wb") as file, counter(partial.stem, total, done, unit="B") as advance:
            for chunk in answer.iter_content(_CHUNK_BYTES):
                file.write(chunk)
                advance(len(chunk))
    tag_file.unlink(missing_ok=True)
    return None
