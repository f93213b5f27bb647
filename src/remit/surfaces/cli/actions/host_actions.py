"""Commands about the workspace, its store and its processes; each calls the host."""

import sys
from typing import Any

from remit.surfaces.cli.arguments import usable
from remit.surfaces.cli.cli_host import Result
from remit.surfaces.cli.command import Session, WrongUse

EDITS = (
    "Allow sub-agents build and general to change files and run sandboxed commands in this folder?"
    " [y/N] "
)


def init_workspace(session: Session, fields: dict[str, Any]) -> Result:
    """Create the workspace; at a terminal, ask once whether agents may change files in it."""
    made = session.host.init(_requested_edits(fields))
    if made["allow_edits"] is not None:
        return made
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return made
    sys.stderr.write(EDITS)
    sys.stderr.flush()
    is_allowed = sys.stdin.readline().strip().lower() in ("y", "yes")
    return made | session.host.init(is_allowed) | {"created": made["created"]}


def _requested_edits(fields: dict[str, Any]) -> bool | None:
    """Return whether the options allow edits; None without such an option."""
    options = {"allow_edits": "--allow-edits", "no_allow_edits": "--no-allow-edits"}
    return {"allow_edits": True, "no_allow_edits": False}.get(_chosen_option(fields, options))


def serve(session: Session, fields: dict[str, Any]) -> Result:
    """Run a server until stopped."""
    insecure, worker = bool(fields.get("insecure")), not fields.get("no_worker")
    session.host.serve(insecure=insecure, worker=worker, detail=_log_detail(fields))
    return {}


def work(session: Session, fields: dict[str, Any]) -> Result:
    """Run a worker until stopped."""
    session.host.worker(fields.get("agents"), detail=_log_detail(fields))
    return {}


def _log_detail(fields: dict[str, Any]) -> str:
    """Return the log level of a worker or a server."""
    return _chosen_option(fields, {"verbose": "-v", "quiet": "-q"}, "normal")


def _chosen_option(fields: dict[str, Any], options: dict[str, str], default: str = "") -> str:
    """Return the field whose option is given; raise if several are."""
    given = list(filter(fields.get, options))
    if len(given) > 1:
        both = " and ".join(options.values())
        raise WrongUse(f"{both} cannot be combined.", hint="Give one of them.")
    return next(iter(given), default)


def read_schedule(session: Session, _fields: dict[str, Any]) -> Result:
    """Return the schedule in force."""
    return session.host.schedule()


def request_tick(session: Session, _fields: dict[str, Any]) -> Result:
    """Request a tick now."""
    return session.host.tick()


def migrate(session: Session, _fields: dict[str, Any]) -> Result:
    """Upgrade the store."""
    return session.host.migrate()


def speak_mcp(session: Session, _fields: dict[str, Any]) -> Result:
    """Serve MCP on standard input and output until the client leaves."""
    session.host.mcp()
    return {}


def examine(session: Session, fields: dict[str, Any]) -> Result:
    """Check the settings, the store and the workers."""
    asked = {name: bool(fields.get(name)) for name in ("verify", "fix", "accept_rollback")}
    return session.host.doctor(**asked)


def check_agents(session: Session, _fields: dict[str, Any]) -> Result:
    """Check every agent file."""
    return session.host.check_agents()


def create_agent_file(session: Session, fields: dict[str, Any]) -> Result:
    """Write a file for a new agent."""
    return session.host.new_agent(fields)


def export_store(session: Session, fields: dict[str, Any]) -> Result:
    """Export the store to files."""
    if str(fields["path"]) == "-":
        raise WrongUse(
            "PATH: export writes to a file or a folder, not to standard output.",
            hint="Name a file, such as: `remit export events events.jsonl`",
        )
    with usable("PATH", str(fields["path"]), "write"):
        return session.host.export(fields["what"], fields["path"])


def import_store(session: Session, fields: dict[str, Any]) -> Result:
    """Import an export."""
    with usable("PATH", str(fields["path"])):
        return session.host.import_(fields["path"])


def read_token(session: Session, _fields: dict[str, Any]) -> Result:
    """Return the operator's token."""
    return {"token": session.host.token()}
