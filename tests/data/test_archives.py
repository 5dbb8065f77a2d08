"""Archives: one member is unpacked, whole or not at all, and nothing else is written."""

import io
import tarfile
import zipfile

import pytest

from common.data import archives
from common.data.archives import unpack_member
from common.errors import UserError

CONTENT = "".join(map(str, range(5000))).encode()


def entry(name, kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def write_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)


def write_tar(path, members):
    """A tar.gz of {name or TarInfo: content}."""
    with tarfile.open(path, "w:gz") as packed:
        for name, content in members.items():
            info = entry(name) if isinstance(name, str) else name
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))


@pytest.fixture(params=[("x.zip", write_zip), ("x.tar.gz", write_tar)], ids=["zip", "tar"])
def archive(request, tmp_path):
    """The path of an archive with a member m/file, and others with names that lead elsewhere."""
    name, write = request.param
    write(tmp_path / name, {"m/file": CONTENT, "../../evil": b"no", "/tmp/evil": b"no"})
    return tmp_path / name


def test_one_member_is_unpacked_and_no_other(archive, tmp_path):
    unpack_member(archive, "m/file", tmp_path / "out" / "deep" / "file")
    assert (tmp_path / "out" / "deep" / "file").read_bytes() == CONTENT
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["file", archive.name]


def test_an_archive_without_the_member_or_with_one_too_large(archive, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=rf"{archive.name}: contains no m/dict\.txt"):
        unpack_member(archive, "m/dict.txt", tmp_path / "file")
    monkeypatch.setattr(archives, "MAX_MEMBER_BYTES", 1000)
    with pytest.raises(UserError, match="larger than 1000 bytes"):
        unpack_member(archive, "m/file", tmp_path / "file")
    with pytest.raises(UserError, match="no such file"):
        unpack_member(archive.with_name(f"other-{archive.name}"), "m/file", tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_a_damaged_archive_leaves_the_target_as_it_was(archive, tmp_path):
    whole = archive.read_bytes()
    (tmp_path / "file").write_text("old")
    for damaged in (b"", b"no archive", whole[: len(whole) // 3], whole[: int(len(whole) * 0.9)]):
        archive.write_bytes(damaged)
        with pytest.raises(UserError, match=f"{archive.name}: damaged or truncated"):
            unpack_member(archive, "m/file", tmp_path / "file")
        assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize("start", [60, 300, 1000])
def test_flipped_bytes_in_a_zip(tmp_path, start):
    write_zip(tmp_path / "x.zip", {"m/file": CONTENT})
    damaged = bytearray((tmp_path / "x.zip").read_bytes())
    damaged[start : start + 40] = bytes(byte ^ 0xFF for byte in damaged[start : start + 40])
    (tmp_path / "x.zip").write_bytes(damaged)
    with pytest.raises(UserError, match=r"x\.zip: damaged or truncated"):
        unpack_member(tmp_path / "x.zip", "m/file", tmp_path / "file")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_a_member_that_is_not_a_plain_file_is_refused(tmp_path, kind):
    write_tar(tmp_path / "x.tar.gz", {entry("m/file", kind, "/etc/passwd"): b""})
    with pytest.raises(UserError, match="is not a plain file"):
        unpack_member(tmp_path / "x.tar.gz", "m/file", tmp_path / "file")
    assert not (tmp_path / "file").exists()
