"""The audit finds planted secrets of every kind, shows none of them, and can fail.

The secrets are put together at run time: this file itself is audited too.
"""

from __future__ import annotations

import base64
import io
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boardbench.errors import BugError, InputError
from boardbench.results import audit as audits
from boardbench.results.audit_patterns import BUILT_IN, Pattern, find, load_user_patterns, mask

# Made up for these tests; nothing anywhere opens with them.
WORD = "PASSWORD".lower()
VALUE = "Kq7" + os.urandom(4).hex()
TOKEN_BODY = base64.b64encode(os.urandom(60)).decode().translate(str.maketrans("+/=", "abc"))[:40]


def chars(text: str) -> str:
    return "+".join(f"chr({ord(letter)})" for letter in text)


def codes(text: str) -> str:
    return ", ".join(str(ord(letter)) for letter in text)


def hexes(text: str) -> str:
    return "".join(f"\\x{ord(letter):02x}" for letter in text)


PLANTED = {
    "assignment": f"{WORD}: {VALUE}",
    "assignment in YAML quotes": f'  {WORD} : "{VALUE}"',
    "assignment of a plain word": f"{WORD}: raspberry",
    "assignment in JSON": f'{{"wifi_{WORD}": "{VALUE}"}}',
    "environment": f"export DB_{WORD.upper()}={VALUE}",
    "short name": f"{WORD[:4]}={VALUE}",
    "token": f"api_token = '{VALUE}{VALUE}'",
    "markdown": f"**{WORD}**: `{VALUE}`",
    "prose": f"Log in as pi; the {WORD} is {VALUE}.",
    "prose with a plain word": f"Log in as pi with the {WORD} raspberry and go on.",
    "prose, a plain word at its end": f"The {WORD} for king is swordfish.",
    "prose, quoted": f'use the {WORD} "open sesame" there',
    "sudo by a pipe": f"echo {VALUE} | sudo -S tee /etc/x",
    "sudo by a here-string": f"sudo -S reboot <<< '{VALUE}'",
    "sshpass": f"ssh{WORD[:4]} -p '{VALUE}' ssh pi@king",
    "option": f"./tool --{WORD}={VALUE} run",
    "URL": f"curl http://admin:{VALUE}@192.168.1.20/rpc",
    "cloud key": "".join(("AK", "IA", "Z7Q3KD8WN2XLP5VM")),
    "service token": "gh" + "p_" + TOKEN_BODY,
    "web token": ".".join(("ey" + "J" + TOKEN_BODY[:12], "ey" + "J" + TOKEN_BODY[12:24], TOKEN_BODY[24:])),
    "header": f"Authorization: Bearer {TOKEN_BODY}",
    "hash": f"root:$6${TOKEN_BODY[:8]}${TOKEN_BODY}{TOKEN_BODY}:19000:0:::::",
    "private key": "-----BEGIN OPENSSH " + f"PRIVATE KEY-----\n{TOKEN_BODY}\n{TOKEN_BODY}\n-----END",
    "private key, cut off": "-----BEGIN " + f"PRIVATE KEY-----\n{TOKEN_BODY}",
    "character codes": chars(VALUE),
    "character codes after a name": f"{WORD} = {chars(VALUE)}",
    "list of codes": f"{WORD} = bytes([{codes(VALUE)}])",
    "escapes": f'{WORD} = "{hexes(VALUE)}"',
    "pieces": f'{WORD} = "{VALUE[:4]}" + "{VALUE[4:]}"',
    "base64": base64.b64encode(f"{WORD}: {VALUE} # router".encode()).decode(),
    "over a line end": f"The {WORD} is\n    {VALUE}\n",
    "over a line end in a comment": f"# {WORD}:\n#   {VALUE}\n",
}

CLEAN = {
    "stand-ins": f"{WORD}: <yours>\n{WORD}=$WIFI\n{WORD}: ***\n{WORD}: x\n{WORD} = None\n",
    "types": f"def login(self, {WORD}: str, token: str | None = None) -> None: ...\n",
    "code": f"{WORD} = ask_for(board)\nself.{WORD} = config.{WORD}\ntoken = next_token\nargs.{WORD} = args[0]\n",
    "prose": f"sudo will not ask for a {WORD}. The {WORD} is never stored. Is a {WORD} needed? A {WORD} file.\n",
    "prose on tokens": "It made 256 tokens, 3.8 tokens per second; a token costs 193 ms.\nn_token: 2048, token = 12\n",
    "passwd lines": "root:x:0:0:root:/root:/bin/sh in /etc/passwd; passwd: files systemd\n",
    "URLs": "https://example.org:8080/path, ssh://pi@king:22, http://[::1]:80/\n",
    "hashes": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  run.json\n",
    "keys": "sort(key=lambda one: one.name); for key, value in items: pass\n",
    "public key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFf0 pi@king\n-----BEGIN PUBLIC KEY-----\n",
    "log": "wall_unix_s,monotonic_s,soc-thermal_celsius,missing\n1796041634.489,4381.562,61.2,\n",
    "code points": "[10, 20, 30, 40, 50, 60] and chr(65)\n",
}


def found(text: str | bytes, patterns: tuple[Pattern, ...] = BUILT_IN) -> list[audits.Finding]:
    data = text.encode() if isinstance(text, str) else text
    return list(audits.audit_file("notes.md", io.BytesIO(data), patterns))


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_secret_is_found_and_not_shown(kind: str) -> None:
    text = f"Some line before.\n{PLANTED[kind]}\nand one after.\n"
    findings = found(text)
    assert findings, kind
    assert {finding.line for finding in findings} <= {2, 3}
    for secret in (VALUE, TOKEN_BODY, TOKEN_BODY[:12], "raspberry", "swordfish", "sesame"):
        assert not any(secret in str(finding) for finding in findings)


@pytest.mark.parametrize("kind", CLEAN)
def test_what_is_no_secret_is_not_found(kind: str) -> None:
    assert found(CLEAN[kind]) == []


@pytest.mark.parametrize("codec", ["utf-16", "utf-8-sig", "latin-1"])
def test_other_encodings_are_read(codec: str) -> None:
    assert found(f"caf\u00e9\n{WORD}: {VALUE}\n".encode(codec))


def test_in_a_binary_file_only_what_is_sure_is_looked_for() -> None:
    noise = bytes(range(256)) * 8
    assert found(noise + PLANTED["cloud key"].encode() + noise)
    assert found(noise + PLANTED["cloud key"].encode("utf-16-le") + noise)
    assert found(noise + PLANTED["assignment"].encode() + noise) == []


def test_a_secret_anywhere_in_a_large_file_is_found_once_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "CHUNK_BYTES", 1 << 16)
    line = b"1796041634.489,4381.562,61.2,\n"
    before = 20_000
    for place in (0, 1, before // 2, before):
        data = line * place + f"{WORD}: {VALUE}\n".encode() + line * (before - place)
        assert [finding.line for finding in found(data)] == [place + 1]
    # Across the border of two pieces, wherever it falls.
    for shift in range(0, 24, 3):
        head = b"x" * ((1 << 16) - 12 + shift) + b"\n"
        assert [finding.line for finding in found(head + PLANTED["assignment"].encode() + b"\n" + line * 4000)] == [2]


def test_an_audit_without_a_pattern_fails_and_one_whose_patterns_are_blind_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no pattern is loaded"):
        audits.audit([], ())
    blind = tuple(Pattern(p.kind, p.find, lambda _: False, p.hints, p.sure) for p in BUILT_IN)
    monkeypatch.setattr(audits, "BUILT_IN", blind)
    with pytest.raises(BugError, match="does not find a planted secret"):
        audits.audit([], blind)


def patterns_file(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "patterns"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_users_own_secret_is_found_whole_and_broken_by_a_line_end(tmp_path: Path) -> None:
    own = load_user_patterns(patterns_file(tmp_path, "# mine\nswordfish two\ncorrecthorse\nre:KING-[0-9]{4}\n"))
    assert len(own) == 3
    for text in ("a swordfish two b", "a swordfish\n   two b", "correct\nhorse", "# correct\n# horse", "KING-1234"):
        assert found(f"x\n{text}\n", own), text
    assert found("KING-12\nswordfish\n", own) == []


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("secret-one\n", 0o644, "others may read"),
        ("secret-one\n", 0o640, "others may read"),
        ("# nothing\n\n", 0o600, "no pattern in it"),
        ("re:(\n", 0o600, "not a regular expression"),
        ("re:x*\n", 0o600, "fits everywhere"),
        ("abc\n", 0o600, "fewer than 4"),
    ],
)
def test_a_pattern_file_that_would_find_nothing_or_leaks_is_refused(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        load_user_patterns(patterns_file(tmp_path, text, mode))


def test_a_pattern_file_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_user_patterns(tmp_path / "none")


def test_what_is_not_looked_into_is_said_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"\x1f\x8b" + b"0" * 50)
    (tmp_path / "b.md").write_text(PLANTED["prose"])
    (tmp_path / "c.md").symlink_to(tmp_path / "b.md")
    (tmp_path / "empty").write_bytes(b"")
    done = audits.audit([(path.name, path) for path in sorted(tmp_path.iterdir())], BUILT_IN)
    assert [finding.file for finding in done.findings] == ["b.md"]
    assert done.skipped == (("a.gz", "compressed"),)
    assert done.files == 2


@pytest.mark.parametrize(
    "text",
    [
        WORD + " " * 300_000 + "x",
        f"{WORD}=" * 30_000,
        f"{WORD} " * 30_000,
        WORD + "1" * 200_000,
        "-----BEGIN " + "A " * 100_000,
        '"" ' * 100_000,
        "chr(65)+" * 30_000,
        f"{WORD}:\n" * 30_000,
    ],
    ids=["spaces", "assignments", "words", "digits", "key", "quotes", "codes", "lines"],
)
def test_text_made_to_be_slow_is_not(text: str) -> None:
    # Searches that go with the square of the length would take minutes to hours.
    began = time.process_time()
    found(text)
    assert time.process_time() - began < 10


@pytest.mark.parametrize("kind", ["assignment", "prose", "URL", "option", "header"])
def test_masking_leaves_the_text_and_takes_the_secret(kind: str) -> None:
    masked = mask(f"before {PLANTED[kind]} after")
    assert VALUE not in masked
    assert TOKEN_BODY not in masked
    assert masked.startswith("before ")
    assert "***" in masked
    assert find(masked, BUILT_IN) == []


def test_collected_logs_with_a_secret_are_a_warning_of_the_campaign(tmp_path: Path) -> None:
    log = tmp_path / "cells/001-a-king/attempt-1/logs/workload.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"connecting\n{PLANTED['URL']}\n")
    cells = [{"name": "001-a-king", "boards": ["king"]}, {"name": "002-a-queen", "boards": ["queen"]}]
    (warning,) = audits.warnings(tmp_path, cells)
    assert warning["board"] == "king"
    assert "cells/001-a-king/attempt-1/logs/workload.log" in warning["what"]
    assert VALUE not in warning["what"]


PIECES = st.lists(
    st.sampled_from(
        [*PLANTED.values(), *CLEAN.values(), "\\x4", "chr(", '"', "'", "[", "-----BEGIN ", "://", "\n", "\0"]
    ),
    max_size=12,
).map("".join)


@given(st.one_of(st.binary(max_size=600), PIECES.map(str.encode), PIECES.map(lambda text: text.encode("utf-16"))))
@settings(max_examples=150, deadline=None)
def test_no_bytes_break_it(data: bytes) -> None:
    for finding in found(data):
        assert VALUE not in finding.shown
        assert finding.line >= 0


@given(PIECES)
@settings(max_examples=80, deadline=None)
def test_masked_text_shows_no_planted_value(text: str) -> None:
    masked = mask(text)
    if text.count(VALUE) == len([hit for hit in find(text, BUILT_IN) if VALUE in text[hit.start : hit.end]]):
        assert VALUE not in masked
