"""The table of commands: what the command line offers, and all it offers."""

from remit.surfaces.cli import act, page, read, show
from remit.surfaces.cli.command import Argument, Command
from remit.surfaces.cli.grant import added
from remit.surfaces.cli.hook import hook
from remit.surfaces.cli.owner import checked_owner

Arguments = tuple[Argument, ...]

STATUSES = ("draft", "active", "pending", "running", "waiting", "paused", "verifying", "done", "failed", "canceled")
PRIORITIES = ("urgent", "high", "normal", "low", "0", "1", "2", "3", "4")
LISTS = ("acceptance", "outputs", "depends-on", "labels", "metadata", "limits")
TEXT = "TEXT, @FILE, or - for standard input"

GROUPS = {
    "": "Hand work to agents under a clear remit, and see what comes of it.",
    "task": "Tasks: create, look at, change, end.",
    "task resource": "The URLs and files of a task.",
    "guide": "Troubleshooting guides that tasks link to.",
    "session": "Outside conversations that hand out or work on tasks.",
    "schedule": "When tasks that wait for their turn get it.",
    "agents": "Who can be given work.",
    "interact": "Questions of agents to people.",
    "token": "The token of this workspace's server.",
}
"""Words that have commands below them, each with its heading."""

COMMON: Arguments = (
    Argument("--workspace", "workspace", "the folder with .remit/ (else: found upward from here)", metavar="DIR"),
    Argument("--database-url", "database_url", "another database than the workspace's own", metavar="URL"),
    Argument("--url", "url", "go through this server instead of opening the database", metavar="URL"),
)
"""Where to find the tasks: taken before and after every command."""
JSON = Argument("--json", "json", "print JSON: exactly what the operation returns", switch=True)

_ALL = Argument("--all", "all", "meanwhile also work on unfinished tasks of others (else: only on this work), where no worker is alive", switch=True)
_TOOLS = "core, standard (the default), all, or names with commas between them"
_LOGGING = (
    Argument("-v", "verbose", "log more: updates that were delivered, subtasks that settled", switch=True),
    Argument("-q", "quiet", "log only warnings and errors", switch=True),
    Argument("--log-format", "log_format", "how to log: text, or json for one object a line (text; REMIT_LOG_FORMAT)", metavar="FORMAT"),
)
_TASK = Argument("TASK", "task_id", "the task: 42, #42 or its uid")
_SESSION = Argument("SESSION", "session_id", "the session")
_PAGE = (
    Argument("--limit", "limit", "how many at most", read.number, "N"),
    Argument("--cursor", "cursor", "go on where the page before ended", metavar="CURSOR"),
)
_WORDS = (
    Argument("--instructions", "instructions", f"what to do: {TEXT}", read.text, "TEXT"),
    Argument("--description", "description", f"why, and the context: {TEXT}", read.text, "TEXT"),
    Argument("--accept", "acceptance", "what must be true at the end; {JSON} can have a check; repeatable", read.criterion, "TEXT", many="list"),
    Argument(
        "--output", "outputs", "an output to hand over: NAME, NAME:json|file|url, NAME? if optional; repeatable", read.output, "NAME", many="list"
    ),
)
_TRAITS = (
    Argument("--priority", "priority", "urgent, high, normal, low, or 0 to 4", read.priority, "WHICH", PRIORITIES),
    Argument("--depends-on", "depends_on", "a task to be done first, or TASK:settled to be ended; repeatable", read.dependency, "TASK", many="list"),
    Argument("--label", "labels", "a word to find it by; repeatable", metavar="WORD", many="list"),
    Argument("--set", "metadata", "metadata: KEY=JSON, or text that is no JSON; repeatable", read.setting, "KEY=VALUE", many="map"),
    Argument("--limits", "limits", "how far it may go, such as max_turns=20 or timeout_seconds=600; repeatable", read.amounts, "NAME=N", many="map"),
)
_BRIEF = (
    *_WORDS,
    Argument("--step", "steps", "a step of the plan; repeatable", read.step, "TITLE", many="list"),
    Argument("--resource", "resources", "a URL or a file that belongs to the work; repeatable", read.resource, "URL|FILE", many="list"),
    Argument("--guide", "tsgs", "a guide to link; repeatable", metavar="GUIDE", many="list"),
    *_TRAITS,
    Argument("--model", "model", "main, light, or provider:name", metavar="MODEL"),
    Argument("--effort", "effort", "how much its model thinks: none, low, medium or high", metavar="EFFORT"),
    Argument("--allow", "tools.allow", "tools it gets beside those of its agent, between commas, such as Edit,Bash", read.names, "TOOLS"),
    Argument("--deny", "tools.deny", "tools it may not use, between commas", read.names, "TOOLS"),
    Argument("--explicit", "completion", "only complete ends it, not a run's last message", switch="explicit"),
    Argument("--draft", "status", "keep it from being worked on", switch="draft"),
    Argument("--not-before", "schedule.not_before", "when it may start, such as 2030-01-31T08:00:00Z", metavar="INSTANT"),
    Argument("--cron", "schedule.cron", "when it starts, the first time and again: five cron fields", metavar="FIELDS"),
    Argument("--channel", "channel", "where its conversation lives", metavar="NAME"),
    Argument("--session", "session_id", "the outside session that will work on it", metavar="SESSION"),
    Argument("--parent-session", "parent_session", "the session of whoever creates it", metavar="SESSION"),
    Argument("--idempotency-key", "idempotency_key", "the same key and body give the same task, for ever", metavar="KEY"),
)

_TASKS = (
    Command(
        "task create",
        "Create a task.",
        "create_task",
        show.changed("Created"),
        (Argument("TITLE", "title", "a clear, actionable label"), Argument("--owner", "owner", "the agent that does it", metavar="AGENT"), *_BRIEF),
        'remit task create "Write the report" --owner general --instructions @brief.md --accept "It is short." --output report',
        prepare=added("owner"),
    ),
    Command(
        "task list",
        "List tasks, newest first: drafts and active ones unless told otherwise.",
        "list_tasks",
        show.tasks("No tasks to show. Create one with: remit task create TITLE --owner AGENT; ended ones are in: remit task history"),
        (
            Argument("--status", "status", "only this status or state", metavar="STATUS", choices=STATUSES),
            Argument("--state", "state", "only this state", metavar="STATE", choices=STATUSES),
            Argument("--owner", "owner", "only tasks of this agent", metavar="AGENT"),
            Argument("--parent", "parent", "only subtasks of this task", metavar="TASK"),
            Argument("--parent-session", "parent_session", "only tasks that this session created", metavar="SESSION"),
            Argument("--label", "label", "only tasks with this label", metavar="WORD"),
            Argument("--scope", "scope", "tree: the whole tree that --parent is in", metavar="SCOPE", choices=("all", "mine", "tree")),
            *_PAGE,
        ),
        "remit task list --status waiting",
        prepare=checked_owner,
    ),
    Command("task show", "Show a whole task, active or ended.", "get_task", page.task, (_TASK,), "remit task show 3"),
    Command(
        "task update",
        "Change a task; its agent is told of new instructions, acceptance or outputs.",
        "update_task",
        show.changed("Updated"),
        (
            _TASK,
            Argument("--title", "title", "a new label", metavar="TITLE"),
            *_WORDS,
            Argument("--status", "status", "start a draft, complete, cancel", metavar="STATUS", choices=("active", "done", "canceled")),
            Argument("--owner", "owner", "another agent; after the first start a successor takes over", metavar="AGENT"),
            *_TRAITS,
            Argument("--clear", "", f"empty one of {', '.join(LISTS)}; repeatable", read.emptied, "FIELD", LISTS, many="map"),
            Argument("--expected-version", "expected_version", "refuse if it has changed since this version", read.number, "N"),
        ),
        'remit task update 3 --instructions "Write it in English." --priority high',
    ),
    Command(
        "task complete",
        "Say that a task is done, and hand over its outputs.",
        "complete_task",
        show.completed,
        (
            _TASK,
            Argument("--output", "outputs", "NAME=TEXT, NAME=@FILE or NAME:=JSON; repeatable", read.handed_over, "NAME=VALUE", many="map"),
            Argument("--summary", "summary", f"what was done: {TEXT}", read.text, "TEXT"),
        ),
        "remit task complete 3 --output report=@report.md",
    ),
    Command(
        "task fail",
        "Say that a task cannot be done, and why.",
        "fail_task",
        show.changed("Failed"),
        (_TASK, Argument("WHY", "message", TEXT, read.text)),
    ),
    Command(
        "task cancel",
        "Call a task off, with everything below it.",
        "cancel_task",
        show.canceled,
        (_TASK, Argument("--message", "message", f"why: {TEXT}", read.text, "TEXT")),
    ),
    Command(
        "task run",
        "Run a task now and wait until it ends or waits; in this process if no worker works on it.",
        act.run_task,
        show.woken,
        (_TASK, _ALL),
        code=act.exit_code,
    ),
    Command("task pause", "Hold a task; it keeps its place.", "pause_task", show.changed("Paused"), (_TASK,)),
    Command("task resume", "Let a paused task go on.", "resume_task", show.changed("Resumed"), (_TASK,)),
    Command("task rerun", "Do an ended task again, as a new task.", "rerun_task", show.changed("Created"), (_TASK,)),
    Command(
        "task assign",
        "Give a task to an outside session.",
        "assign_task",
        show.said("Assigned; the session gets it with its next request."),
        (_TASK, Argument("SESSION", "subagent_session_id", "the session that will work on it")),
    ),
    Command(
        "task steps",
        "Replace the plan; a step with a subtask must keep its place and title.",
        "update_steps",
        show.changed("Planned"),
        (_TASK, Argument("STEP", "steps", "a step; [x] before it if it is done", read.step, many="list")),
        'remit task steps 3 "[x] Read" "Write"',
    ),
    Command(
        "task step",
        "Change one step of the plan.",
        "update_step",
        show.changed("Planned"),
        (
            _TASK,
            Argument("INDEX", "index", "which step, as task show numbers them (from 0)", read.number),
            Argument("--done", "done", "it is done", switch=True),
            Argument("--undone", "done", "it is not done after all", switch=False),
            Argument("--title", "title", "a new title", metavar="TITLE"),
            Argument("--details", "details", f"new details: {TEXT}", read.text, "TEXT"),
        ),
        "remit task step 3 0 --done",
    ),
    Command(
        "task subtask",
        "Create a subtask, for a step of the plan if one is named.",
        act.subtask,
        show.changed("Created"),
        (
            _TASK._replace(help="the parent task"),
            Argument("TITLE", "title", "a clear, actionable label"),
            Argument("OWNER", "owner", "the agent that does it"),
            Argument("--for-step", "step_index", "the parent's step it carries out (from 0)", read.number, "INDEX"),
            Argument(
                "--wait",
                "wait",
                "wake: its end wakes the parent; block: this command also waits for its end; none: neither",
                metavar="HOW",
                choices=("wake", "block", "none"),
            ),
            *_BRIEF,
        ),
        'remit task subtask 3 "Look around" explore --for-step 0',
        code=act.exit_code,
        prepare=added("owner"),
    ),
    Command(
        "task resource add",
        "Attach a URL or a file to a task.",
        "add_resource",
        show.changed("Attached it to"),
        (_TASK, Argument("URL|FILE", "", "what to attach", read.resource), Argument("--label", "label", "a name to show", metavar="NAME")),
    ),
    Command(
        "task resource remove",
        "Take a resource off a task.",
        "remove_resource",
        show.changed("Removed it from"),
        (_TASK, Argument("INDEX", "index", "which one, as task show numbers them (from 0)", read.number)),
    ),
    Command(
        "task guide",
        "Link a troubleshooting guide to a task.",
        "attach_tsg",
        show.said("Linked."),
        (_TASK, Argument("GUIDE", "tsg_id", "the guide's id")),
    ),
    Command(
        "task waive",
        "Do without an acceptance criterion.",
        "waive_criterion",
        show.changed("Waived it for"),
        (_TASK, Argument("CRITERION", "criterion_id", "its id, as task show has it"), Argument("REASON", "reason", TEXT, read.text)),
    ),
    Command(
        "task message",
        "Say something to the agent of a task.",
        act.message,
        show.said("Sent", "=update_id", "to be read", "=delivery"),
        (_TASK, Argument("TEXT", "message", TEXT, read.text)),
    ),
    Command("task history", "List ended tasks, the latest first.", "list_history", show.tasks("No task has ended yet."), _PAGE),
    Command(
        "task events",
        "Show what happened to a task, in order.",
        "get_events",
        show.events,
        (_TASK, Argument("--after", "after", "only after this version", read.number, "VERSION"), _PAGE[0]),
    ),
    Command(
        "task transcript",
        "Show the conversation of a task: what its agent was told, said and did.",
        "get_transcript",
        page.transcript,
        (_TASK, Argument("--after", "after", "only messages numbered above this", read.number, "N")),
    ),
    Command(
        "task result",
        "Show the result of a task, or how it stands.",
        act.result,
        page.delegated,
        (
            _TASK,
            Argument("--wait", "wait_seconds", "wait so many seconds for its end", read.number, "N"),
            Argument("--offset", "offset", "leave out so many characters of the result", read.number, "N"),
        ),
        code=act.exit_code,
    ),
    Command(
        "task updates",
        "Show what the agent was or will be told, each with its receipt.",
        "list_updates",
        show.updates,
        (_TASK, Argument("--after", "after", "only those numbered above this", read.number, "N")),
    ),
    Command(
        "task watch",
        "Follow events as they happen: of all tasks until stopped, or of one until it ends.",
        act.watch,
        show.event,
        (
            _TASK._replace(help="only this task; the exit code tells how it ended", optional=True),
            Argument("--after", "after", "begin after this position of an event", metavar="POSITION"),
        ),
        code=act.exit_code,
        interrupted=act.left_watching,
    ),
)

_WORK = (
    Argument("--agent", "subagent_type", "who does it (general); 'remit agents list' shows all", metavar="AGENT"),
    Argument("--model", "model", "main, light, or provider:name", metavar="MODEL"),
    Argument("--effort", "effort", "how much its model thinks: none, low, medium or high", metavar="EFFORT"),
    Argument("--allow", "tools.allow", "tools it gets beside its own, between commas, such as Edit,Bash", read.names, "TOOLS"),
    Argument("--timeout", "timeout_seconds", "seconds it may work (120)", read.number, "N"),
    Argument("--cache", "cache", "take the result of an identical read-only task if there is one", switch=True),
)

_OTHERS = (
    Command(
        "init",
        "Make a workspace in this folder.",
        act.init,
        show.workspace,
        (
            Argument("--allow-edits", "allow_edits", "let build and general change files here and run sandboxed commands", switch=True),
            Argument("--no-allow-edits", "no_allow_edits", "let them only read, and do not ask", switch=True),
        ),
        "remit init --allow-edits",
    ),
    Command(
        "run",
        "Hand a piece of work to a sub-agent and wait for what comes of it.",
        act.run,
        page.delegated,
        (Argument("OBJECTIVE", "objective", f"what to do: {TEXT}", read.text), *_WORK, _ALL),
        'remit run "Where is the retry policy defined?" --agent explore',
        code=act.exit_code,
        prepare=added("subagent_type", "general", anywhere=True),
    ),
    Command(
        "parallel",
        "Hand several pieces of work to sub-agents at once: a JSON list, or a line for each.",
        act.parallel,
        page.delegated_all,
        (
            Argument("FILE", "tasks", "the file, on each line an objective or a JSON object; - for standard input", read.path),
            _WORK[3]._replace(help="seconds each may work (120)"),
            _ALL,
        ),
        """echo '{"objective": "Where are errors handled?", "subagent_type": "explore"}' | remit parallel -""",
        code=act.exit_code,
    ),
    Command("ready", "List tasks that could start now, the most urgent first.", "list_ready", show.tasks("Nothing could start now."), _PAGE),
    Command("inbox", "Show what needs you: open questions, and how to answer them.", "list_interactions", page.inbox, _PAGE),
    Command("notifications", "Show what agents told people, oldest first.", "list_notifications", show.notifications, _PAGE),
    Command(
        "guide add",
        "Write a troubleshooting guide.",
        "create_guide",
        show.said("Added guide", "=guide_id"),
        (
            Argument("TITLE", "title", "what it helps with"),
            Argument("TEXT", "body", f"what to do when that goes wrong: {TEXT}", read.text),
            Argument("--id", "id", "its id (else: made from the title)", metavar="GUIDE"),
        ),
        'remit guide add "Flaky network" @network.md',
    ),
    Command("guide list", "List the guides.", "list_guides", show.guides, _PAGE),
    Command("guide show", "Show a guide.", "get_guide", page.guide, (Argument("GUIDE", "guide_id", "its id"),)),
    Command("agents list", "List who can be given work.", "list_agents", show.agents),
    Command("agents show", "Show what is known of an agent.", "get_agent", page.agent, (Argument("AGENT", "agent_id", "its id"),)),
    Command(
        "agents check",
        "Say what becomes of every agent file, field by field; the exit code is 1 if something is wrong.",
        act.check_agents,
        page.checked,
        code=act.soundness,
    ),
    Command(
        "agents new",
        "Write a commented file for a new agent.",
        act.new_agent,
        show.written,
        (
            Argument("ID", "agent_id", "its id: letters, digits and dashes"),
            Argument("--description", "description", f"when it should be given work: {TEXT}", read.text, "TEXT"),
            Argument("--tools", "tools", "what it may use, between commas", read.names, "TOOLS"),
            Argument("--model", "model", "main, light, or provider:name", metavar="MODEL"),
        ),
        'remit agents new reviewer --description "Reviews a change." --tools Read,Grep,Glob',
    ),
    Command(
        "interact list",
        "List questions, the open ones unless told otherwise.",
        "list_interactions",
        page.inbox,
        (
            Argument("--status", "status", "which ones", metavar="STATUS", choices=("open", "answered", "closed")),
            Argument("--task", "task_id", "only those of this task", metavar="TASK"),
            *_PAGE,
        ),
    ),
    Command(
        "interact respond",
        "Answer a question; the first answer stands.",
        act.respond,
        show.said("Answered."),
        (
            Argument("QUESTION", "ref", "the question, such as 3-q1; or a task, for its one open question"),
            Argument("ANSWER", "answer", f"the number of an option, or the answer: {TEXT}", read.text, optional=True),
            Argument("--option", "option", "instead of an answer: the option with this number", read.number, "N"),
        ),
        "remit interact respond 3-q1 1",
    ),
    Command(
        "serve",
        "Serve REST and MCP until stopped, and work on tasks.",
        act.serve,
        show.nothing,
        (
            Argument("--host", "host", "the address to listen on (127.0.0.1)", metavar="ADDRESS"),
            Argument("--port", "port", "the port to listen on (8420)", read.number, "N"),
            Argument("--insecure", "insecure", "allow another address than this machine's own without TLS", switch=True),
            Argument("--no-worker", "no_worker", "only serve; `remit worker` processes do the work", switch=True),
            Argument("--concurrency", "concurrency", "how many runs at once (8)", read.number, "N"),
            Argument("--mcp-tools", "mcp_tools", f"the tools that MCP clients are shown: {_TOOLS}", metavar="TOOLS"),
            *_LOGGING,
        ),
        data=False,
    ),
    Command(
        "worker",
        "Work on tasks until stopped; as many as wanted, on any machine with the same database.",
        act.worker,
        show.nothing,
        (
            Argument("--agents", "agents", "only for these agents, separated by commas (all)", read.names, "A,B"),
            Argument("--concurrency", "concurrency", "how many runs at once (8)", read.number, "N"),
            *_LOGGING,
        ),
        "remit worker --database-url postgresql://user@host/name --concurrency 16",
        data=False,
    ),
    Command(
        "session tasks",
        "List the tasks that a session works on, or has created.",
        "list_session_tasks",
        show.tasks("This session has no such task. Give it one with: remit task assign TASK SESSION"),
        (
            _SESSION,
            Argument("--role", "role", "assigned: it works on them; created: it handed them out", metavar="ROLE", choices=("assigned", "created")),
            Argument("--status", "status", "only these", metavar="STATUS", choices=STATUSES),
            *_PAGE,
        ),
    ),
    Command(
        "session pre-request",
        "Print what a session must be told before its next request: its assignment first, later each update once.",
        "pre_request",
        show.lines("context"),
        (_SESSION,),
    ),
    Command(
        "hook",
        "Print what a session must be told, for a hook of another agent program that names it on standard input; never fails.",
        hook,
        show.nothing,
        example='echo \'{"session_id": "s1"}\' | remit hook',
        data=False,
    ),
    Command(
        "session cancel",
        "Cancel every task that a session has handed out, and wait until they have stopped.",
        "cancel_all",
        page.canceled_all,
        (_SESSION,),
    ),
    Command("schedule show", "Show when tasks that wait for their turn get it.", act.schedule, page.schedule),
    Command("schedule tick", "Give every task that waits for its turn one now.", act.tick, page.ticked),
    Command("migrate", "Bring the store to this version's schema.", act.migrate, show.said("The", "=store", "store has schema", "=schema")),
    Command(
        "mcp",
        "Speak MCP on standard input and output.",
        act.mcp,
        show.nothing,
        (Argument("--tools", "mcp_tools", f"the tools to list: {_TOOLS}", metavar="TOOLS"),),
        "remit mcp --tools core",
        data=False,
    ),
    Command(
        "export",
        "Write all events to a file, or tasks.json and history.jsonl to a folder.",
        act.export,
        show.exported,
        (Argument("WHAT", "what", "events or tasks", choices=("events", "tasks")), Argument("PATH", "path", "where to", read.path)),
        "remit export events backup.jsonl",
    ),
    Command(
        "import",
        "Read what export wrote, into an empty store.",
        act.import_,
        show.imported,
        (Argument("PATH", "path", "the file or folder", read.path),),
    ),
    Command(
        "doctor",
        "Show what is in force and where it comes from.",
        act.doctor,
        page.doctor,
        (
            Argument("--verify", "verify", "prove that the store holds together", switch=True),
            Argument("--fix", "fix", "put right what was left behind, where that is safe", switch=True),
            Argument("--accept-rollback", "accept_rollback", "go on with a store that went back in time, with new ids", switch=True),
        ),
        code=act.health,
    ),
    Command(
        "help",
        "Show what a command or a group of commands does.",
        act.help_,
        show.nothing,
        (Argument("COMMAND", "words", "the command, such as: task create", many="list", optional=True),),
        "remit help task create",
        data=False,
    ),
    Command("token show", "Print the token that the server wants.", act.token, show.said("=token")),
    Command(
        "completion",
        "Print a script that completes commands, options, agents, tasks and states.",
        act.completion,
        show.lines("script"),
        (
            Argument("SHELL", "shell", "bash, zsh or fish", choices=("bash", "zsh", "fish"), optional=True),
            Argument("--names", "names", "print the ids that the script completes", metavar="KIND", choices=("agents", "tasks", "live", "questions")),
        ),
        'eval "$(remit completion bash)"  # in ~/.bashrc\n'
        'autoload -U compinit && compinit; eval "$(remit completion zsh)"  # in ~/.zshrc\n'
        "remit completion fish > ~/.config/fish/completions/remit.fish",
        data=False,
    ),
)

COMMANDS: dict[str, Command] = {command.path: command for command in (*_OTHERS[:1], *_TASKS, *_OTHERS[1:])}
