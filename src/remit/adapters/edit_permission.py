"""The operator's permissions for a workspace, stored outside it: a copy or a clone has none."""

import json
from pathlib import Path

from remit.adapters.state_files import replace_json, state_folder


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
    replace_json(_record(root), {"workspace": _place(root), "allow_edits": _fingerprint(content)})


def forbid_edits(root: Path) -> None:
    """Revoke the permission."""
    _record(root).unlink(missing_ok=True)


def _record(root: Path) -> Path:
    from hashlib import sha256

    return state_folder() / "trust" / f"{sha256(_place(root).encode()).hexdigest()[:32]}.json"


def _place(root: Path) -> str:
    return str(root.resolve())


def _fingerprint(content: object) -> str:
    from hashlib import sha256

    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
