"""Makes the sample trajectories that the project ships: `python -m agentcache.replay.sample`.

The conversations are written by hand (`assets/source/`): a system prompt, an invented repository with four faults,
and the thoughts and commands of an agent that repairs them. The observations are what the commands really print in
that repository, so thoughts and outputs fit each other. Needs bash, git and GNU tools; the result is committed.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ASSETS = Path(__file__).parent / "assets"
SAMPLE = ASSETS / "larder.jsonl"
LONGEST_OUTPUT = 6000
_ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "sample",
    "GIT_AUTHOR_EMAIL": "sample@example.com",
    "GIT_COMMITTER_NAME": "sample",
    "GIT_COMMITTER_EMAIL": "sample@example.com",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "LC_ALL": "C",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_COMMAND = re.compile(r"```bash\n(.*?)\n```", re.DOTALL)
_SECONDS = re.compile(r"\bin \d+\.\d+s\b")


def make(source: Path) -> Iterator[dict[str, Any]]:
    """Every session of `source` as a mini-swe-agent-1 trajectory, its commands run in a fresh repository."""
    system = (source / "system.md").read_text(encoding="utf-8")
    repository = sections((source / "repository.txt").read_text(encoding="utf-8"), "=== ")
    for name, text in sections((source / "sessions.txt").read_text(encoding="utf-8"), "=== "):
        (_, task), *turns = sections(text, "--- ")
        with TemporaryDirectory() as folder:
            root = Path(folder) / "repository"
            lay_out(repository, root)
            yield trajectory(name, system, task, [thought.rstrip("\n") for _, thought in turns], root)


def sections(text: str, mark: str) -> list[tuple[str, str]]:
    """Cut a text at its lines that begin with `mark`: (rest of that line, what follows it)."""
    parts = re.split(rf"^{re.escape(mark)}(.*)\n", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def lay_out(repository: list[tuple[str, str]], root: Path) -> None:
    """Write the invented repository and commit it."""
    for name, text in repository:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    run("git init -q -b main && git add -A && git commit -q -m start", root)


def trajectory(name: str, system: str, task: str, turns: list[str], root: Path) -> dict[str, Any]:
    """The conversation of one session with the observations of its commands."""
    first = f"<report>\n{task.strip()}\n</report>\n\nThe repository is in the current directory. Begin."
    messages = [{"role": "system", "content": system}, {"role": "user", "content": first}]
    for turn in turns:
        command = _COMMAND.findall(turn)
        code, output = run(command[0], root)
        messages.append({"role": "assistant", "content": turn})
        messages.append({"role": "user", "content": observation(code, output)})
    submission = output.removeprefix("MENDER_DONE\n")
    messages[-1]["content"] = submission
    info = {"exit_status": "Submitted", "submission": submission, "model_stats": {"api_calls": len(turns)}}
    return {"instance_id": name, "trajectory_format": "mini-swe-agent-1", "messages": messages, "info": info}


def run(command: str, root: Path) -> tuple[int, str]:
    """Return code and output of a command; times and temporary places are made the same for every run."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": tools, "HOME": str(root.parent), **_ENVIRONMENT}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        check=False,
    )
    output = _SECONDS.sub("in 0.002s", done.stdout.decode("utf-8"))
    return done.returncode, output.replace(str(root), "/repository").replace(str(root.parent), "")


def observation(code: int, output: str) -> str:
    """What the agent is told: the return code and the output, cut in the middle where it is long."""
    if len(output) > LONGEST_OUTPUT:
        half = LONGEST_OUTPUT // 2
        cut = len(output) - 2 * half
        output = f"{output[:half]}\n[{cut} characters left out]\n{output[-half:]}"
    return f"<returncode>{code}</returncode>\n<output>\n{output}</output>"


def main() -> None:
    lines = [json.dumps(session, ensure_ascii=False) for session in make(ASSETS / "source")]
    SAMPLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{SAMPLE}: {len(lines)} sessions, {SAMPLE.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
