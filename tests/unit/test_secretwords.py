"""Secrets that the process knows get into no text that leaves it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from boardbench.errors import RigError
from boardbench.inventory import load_inventory
from boardbench.matrix.journal import Journal
from boardbench.matrix.progress import Phase, Progress
from boardbench.results import audit, store
from boardbench.results.audit_patterns import known_patterns
from boardbench.secretwords import REGISTRY, Registry, Veil, is_secret_name

# Put together here, so that this file holds no secret itself.
VALUE = "Tr0ub4" + 'dor&3"x'
WORD = "pass" + "word"


@pytest.fixture(autouse=True)
def only_mine() -> Iterator[None]:
    """What other tests have taught the process is forgotten, and so is what this one does."""
    REGISTRY.forget()
    yield
    REGISTRY.forget()


@pytest.mark.parametrize(
    ("name", "secret"),
    [("SUDO_PASSWORD", True), ("wifi_psk", True), ("token", True), ("GITHUB_TOKEN", True), ("api_key", True),
     ("dbpassword", True), ("PWD", False), ("OLDPWD", False), ("key_file", False), ("SSH_AUTH_SOCK", False),
     ("SUDO_ASKPASS", False), ("pinned", False), ("passive", False), ("tokens_per_s", False)],
)  # fmt: skip
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


@pytest.mark.parametrize(
    "options",
    [
        {WORD: VALUE},
        {"vars": {"wifi_psk": VALUE}},
        {"address": f"http://admin:{VALUE.replace('&', '%26').replace(chr(34), '%22')}@192.0.2.20"},
        {"on": ["/usr/bin/plug", f"--{WORD}", VALUE, "on"]},
        {"on": ["/usr/bin/plug", f"--{WORD}={VALUE}"]},
        {"on": ["/usr/bin/env", f"PLUG_TOKEN={VALUE}", "/usr/bin/plug"]},
        {"on": ["/usr/bin/curl", "-u", f"admin:{VALUE}"]},
        {"called": VALUE},
    ],
)
def test_where_an_inventory_can_hold_a_secret(options: dict[str, object]) -> None:
    registry = Registry()
    registry.learn({"boards": {"king": {"power": options}}}, "inventory lab.yml", named=["called"])
    assert registry.values == ((VALUE, "inventory lab.yml"),)
    assert registry.hide(f"it is {VALUE}!") == "it is ***!"
    assert VALUE not in json.loads(registry.hide(json.dumps([VALUE])))


def test_words_that_are_none_stay() -> None:
    registry = Registry()
    registry.learn({WORD: "none", "on": ["/bin/socket", "2", "on"], "address": "http://192.0.2.20"}, "x")
    registry.learn_environment({"PWD": str(Path.cwd()), "LC_TOKEN": "abc"})
    assert registry.values == ()


def test_a_known_secret_gets_into_no_text(tmp_path: Path) -> None:
    REGISTRY.learn_environment({"PLUG": VALUE, "HOME": "/root"}, named=["PLUG"])
    evidence = {"gate": "cooling", "saw": {"read": f"said {VALUE}", "n": 1.5, "ok": True, "list": [None, VALUE]}}
    store.write_json(tmp_path / "run.json", evidence)
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.note("lost", why=f"plug says {VALUE}")
    error = RigError(f"plug ended with 1: {VALUE}", where="king", advice=f"ask {VALUE}")
    screen = io.StringIO()
    print(f"it is {VALUE}", file=Veil(screen))  # type: ignore[arg-type]
    texts = [
        (tmp_path / "run.json").read_text(),
        (tmp_path / "journal.jsonl").read_text(),
        f"{error} {error.as_dict()} {error.args}",
        Progress(Phase.RETRY, f"no answer ({VALUE})").message,
        screen.getvalue(),
    ]
    assert all(VALUE not in text and json.dumps(VALUE)[1:-1] not in text and "***" in text for text in texts)
    read = store.read_object(tmp_path / "run.json")
    assert read["saw"] == {"read": "said ***", "n": 1.5, "ok": True, "list": [None, "***"]}
    assert store.canonical_sha256(read) == store.canonical_sha256(evidence)


def test_without_secrets_nothing_is_changed() -> None:
    value = {"a": ("x", 1)}
    assert REGISTRY.hide_in(value) is value
    assert REGISTRY.hide("abc") == "abc"


def inventory(folder: Path, extra: str) -> Path:
    path = folder / "lab.yml"
    board = f"{{kind: nanopi-r76s, access: {{host: 192.0.2.3}}, vars: {{rack: {json.dumps(VALUE)}}}}}"
    path.write_text(f"version: 1\n{extra}boards:\n  king: {board}\n")
    return path


def test_an_inventory_teaches_its_secrets_and_those_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACK_DOOR", "Open-Sesame-77")
    load_inventory(inventory(tmp_path, ""))
    assert VALUE not in dict(REGISTRY.values)
    load_inventory(inventory(tmp_path, "secrets: [rack, RACK_DOOR]\n"))
    assert {VALUE, "Open-Sesame-77"} <= set(dict(REGISTRY.values))


def test_the_audit_finds_a_known_secret_that_has_no_form_of_one(tmp_path: Path) -> None:
    REGISTRY.add("correct horse", "inventory lab.yml")
    (tmp_path / "workload.log").write_text("fine\nthe correct\nhorse stood there\n")
    found = audit.audit([("workload.log", tmp_path / "workload.log")], known_patterns(REGISTRY.values)).findings
    assert [(finding.line, finding.kind) for finding in found] == [(2, "the secret of inventory lab.yml")]
    assert "horse" not in repr(found)
