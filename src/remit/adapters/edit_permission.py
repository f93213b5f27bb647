"""The operator's permissions for a workspace, stored outside it: a copy or a clone has none."""

import json
import os
from pathlib import Path

from remit.adapters.stores.high_water_mark import marks_folder


def allows_edits(root: Path, content: object) -> bool:
    """Return True if the operator allowed edits in a folder with these settings."""
    try:
        found = json.loads(_record(root).read_bytes())
    except (OSError, ValueError):
        return False
    allowed = {"workspace": _place(root), "allow_edits": _fingerprint(content)}
    return bool(found == allowed)


def allow_edits(root: Path, content: object) -> None:
    """Record that the operator allows edits in a folder."""
    path = _record(root)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.parent / f".{os.getpid()}-{os.urandom(4).hex()}"
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump({"workspace": _place(root), "allow_edits": _fingerprint(content)}, file)
    new.replace(path)


def forbid_edits(root: Path) -> None:
    """Revoke the permission."""
    _record(root).unlink(missing_ok=True)


def _record(root: Path) -> Path:
    from hashlib import sha256

    return (
        marks_folder().parent / "trust" / f"{sha256(_place(root).encode()).hexdigest()[:32]}.json"
    )


def _place(root: Path) -> str:
    return str(root.resolve())


def _fingerprint(content: object) -> str:
    from hashlib import sha256

    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
