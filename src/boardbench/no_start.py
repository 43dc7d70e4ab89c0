"""Why the board's side did not start at all: what the login shell, sudo or Python said, in one sentence."""

from __future__ import annotations

from boardbench.errors import RigError


def did_not_start(code: int | None, said: str, user: str, where: str) -> RigError:
    """The error for `user` on the board `where`. `code`: the exit code, None after a signal; `said`: its last words."""
    last = said.splitlines()[-1] if said else ""
    if "sudo:" in said and any(words in said for words in ("password is required", "terminal is required", "no tty")):
        return RigError(
            f"sudo asks user {user} for a password",
            where=where,
            advice=f"allow it without: `{user} ALL=(ALL) NOPASSWD: ALL` in /etc/sudoers.d/boardbench",
        )
    if "sudoers" in said or "not allowed to execute" in said:
        return RigError(f"user {user} may not use sudo: {last}", where=where, advice="allow it in /etc/sudoers.d")
    if code == 127 or "not found" in said:
        missing = "sudo" if "sudo" in last and "python3" not in last else "python3"
        return RigError(f"there is no {missing} on the board", where=where, advice=f"apt-get install {missing}")
    how = "a signal" if code is None else f"exit code {code}"
    return RigError(
        f"the board's program did not start ({how})" + (f": {said[-400:]}" if said else ""),
        where=where,
        advice="" if said else f"can user {user} run commands there, and is the disk in order?",
    )
