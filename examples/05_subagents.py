"""Agents through the session router: a parent, two sub-agents that share its prefix, and a close that takes all three.

Starts a worker with a router in front, or uses the router at AGENTCACHE_URL. Run: python examples/05_subagents.py
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import openai
from openai.types.chat import ChatCompletionMessageParam

PARENT = f"example-05-{os.getpid()}"
TASK = (
    "You fix bugs in a small repository. Read before you write, run the tests after every change, and explain each "
    "command in one sentence. Never touch files outside the repository. "
) * 24
LISTENING = "router listening on "


@contextmanager
def router() -> Iterator[str]:
    """The URL of a running router; what we started is ended by its process."""
    if "AGENTCACHE_URL" in os.environ:
        yield os.environ["AGENTCACHE_URL"].rstrip("/")
        return
    command = [sys.executable, "-m", "agentcache", "serve", "--port", "0", "--log-level", "warning"]
    command += ["--with-router", "--router-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield _url(process)
        finally:
            process.terminate()


def _url(process: "subprocess.Popen[str]") -> str:
    for line in process.stdout or ():
        print(line, end="")
        if line.startswith(LISTENING):
            return line.removeprefix(LISTENING).strip()
    raise SystemExit(f"the worker ended with code {process.wait()}")


def turn(client: openai.OpenAI, session: str, parent: str, said: str) -> int:
    """One turn of an agent; answers how many prompt tokens came from the cache."""
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": TASK},
        {"role": "user", "content": said},
    ]
    headers = {"x-agentcache-session": session} | ({"x-agentcache-parent": parent} if parent else {})
    answer = client.chat.completions.with_raw_response.create(
        model="tiny-all", messages=messages, max_tokens=8, temperature=0, extra_headers=headers
    )
    usage = answer.parse().usage
    cached = (usage.prompt_tokens_details.cached_tokens or 0) if usage and usage.prompt_tokens_details else 0
    where, state = answer.headers["x-agentcache-worker"], answer.headers["x-agentcache-state"]
    print(
        f"{session}: {usage.prompt_tokens if usage else 0} prompt tokens, {cached} cached, {state} on {where}"
    )
    return cached


def main() -> None:
    with router() as url, openai.OpenAI(base_url=f"{url}/v1", api_key="unused") as client:
        turn(client, PARENT, "", "Find out why the parser fails, and split the work.")
        cached = [
            turn(client, f"{PARENT}/{name}", PARENT, f"You are the sub-agent for {name}. Begin.")
            for name in ("tests", "docs")
        ]
        closed = httpx2.delete(f"{url}/v1/sessions/{PARENT}").json()
        family = [closed, *closed["children"]]
        for one in family:
            told = ", ".join(f"{worker['worker']}: {worker['outcome']}" for worker in one["workers"])
            print(f"closed {one['session_id']}: {told}")
        late = httpx2.get(f"{url}/v1/sessions/{PARENT}").json()
    print(f"afterwards it is {late['state']}")
    if not (all(cached) and len(family) == 3 and late["state"] == "closed"):
        raise SystemExit("the sub-agents did not share their parent's prefix, or a session is still open")


if __name__ == "__main__":
    main()
