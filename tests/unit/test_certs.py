"""The fleet's small certificate authority."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509

from boardbench.certs import CLIENT_NAME, SCHEDULER_NAME, issue
from boardbench.errors import InputError, RigError

NAMES = ["king", SCHEDULER_NAME, CLIENT_NAME]


def _made(folder: Path, names: list[str], **options: bool) -> list[str]:
    return [item.name for item in issue(folder, names, **options) if item.made]


def test_a_second_call_changes_nothing(tmp_path: Path) -> None:
    assert _made(tmp_path, NAMES) == ["ca", "token", *NAMES]
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert _made(tmp_path, NAMES) == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_new_board_gets_the_one_that_is_missing(tmp_path: Path) -> None:
    issue(tmp_path, NAMES)
    assert _made(tmp_path, [*NAMES, "queen"]) == ["queen"]


def test_renewing_keeps_the_authority(tmp_path: Path) -> None:
    issue(tmp_path, NAMES)
    authority = (tmp_path / "ca.pem").read_bytes()
    assert _made(tmp_path, NAMES, renew=True) == ["token", *NAMES]
    assert (tmp_path / "ca.pem").read_bytes() == authority


def test_certificates_of_another_authority_are_made_anew(tmp_path: Path) -> None:
    issue(tmp_path, NAMES)
    issue(tmp_path / "other", ["king"])
    for name in ("ca.pem", "ca-key.pem"):
        (tmp_path / name).write_bytes((tmp_path / "other" / name).read_bytes())
    assert _made(tmp_path, NAMES) == NAMES


def test_a_certificate_has_the_boards_name_and_was_valid_on_a_board_whose_clock_is_behind(tmp_path: Path) -> None:
    issue(tmp_path, ["king"])
    certificate = x509.load_pem_x509_certificate((tmp_path / "king.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["king"]
    authority = x509.load_pem_x509_certificate((tmp_path / "ca.pem").read_bytes())
    certificate.verify_directly_issued_by(authority)
    span = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert span.days > 1000
    assert certificate.not_valid_before_utc >= authority.not_valid_before_utc


def test_only_the_owner_reads_keys_and_token(tmp_path: Path) -> None:
    issue(tmp_path, NAMES)
    private = [path for path in tmp_path.iterdir() if path.name.endswith("-key.pem") or path.name == "token"]
    assert len(private) == 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 65, "ca", "käse"])
def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError):
        issue(tmp_path, [name])


def test_half_an_authority_and_foreign_files_are_told_and_not_written_over(tmp_path: Path) -> None:
    issue(tmp_path, ["king"])
    (tmp_path / "king.pem").write_text("no certificate\n")
    with pytest.raises(InputError, match="no certificate with its key"):
        issue(tmp_path, ["king"])
    (tmp_path / "ca-key.pem").unlink()
    with pytest.raises(InputError, match="only in half"):
        issue(tmp_path, ["king"])


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RigError, match="cannot be kept"):
        issue(tmp_path / "file" / "certs", ["king"])
