"""An agent's conversation through the `openai` client: one session, three turns, the cached part grows.

Starts a worker on the built-in model, or uses the one at AGENTCACHE_URL. Run: python examples/03_openai_session.py
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import openai
from openai.types.chat import ChatCompletionMessageParam

SESSION = f"example-03-{os.getpid()}"
TASK = (
    "You fix bugs in a small repository. Read before you write, run the tests after every change, and explain each "
    "command in one sentence. Never touch files outside the repository. "
) * 12
OUTPUT = "src/parser.py:41: TypeError: expected a str, got bytes; the caller passes the raw line\n" * 12
LISTENING = "listening on "


@contextmanager
def worker() -> Iterator[str]:
    """The URL of a running worker; one that we started is ended by its process."""
    if "AGENTCACHE_URL" in os.environ:
        yield os.environ["AGENTCACHE_URL"].rstrip("/")
        return
    command = [sys.executable, "-m", "agentcache", "serve", "--port", "0", "--log-level", "warning"]
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


def turn(client: openai.OpenAI, messages: list[ChatCompletionMessageParam]) -> tuple[str, int, int]:
    """Stream one answer: its text, the prompt's tokens, and how many of them came from the cache."""
    stream = client.chat.completions.create(
        model="tiny-all",
        messages=messages,
        max_tokens=12,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_headers={"x-agentcache-session": SESSION},
    )
    text, prompt, cached = "", 0, 0
    for chunk in stream:
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
        if chunk.usage and chunk.usage.prompt_tokens_details:
            prompt = chunk.usage.prompt_tokens
            cached = chunk.usage.prompt_tokens_details.cached_tokens or 0
    return text, prompt, cached


def main() -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": TASK}]
    seen: list[int] = []
    with worker() as url, openai.OpenAI(base_url=f"{url}/v1", api_key="unused") as client:
        for number in range(1, 4):
            messages.append({"role": "user", "content": f"Turn {number}. The tests say:\n" + OUTPUT})
            text, prompt, cached = turn(client, messages)
            messages.append({"role": "assistant", "content": text})
            seen.append(cached)
            print(f"turn {number}: {prompt} prompt tokens, {cached} of them cached")
        closed = httpx2.delete(f"{url}/v1/sessions/{SESSION}").json()
    print(f"closed: {closed['state']}, {closed['markers']} markers released")
    if not seen[0] < seen[1] < seen[2]:
        raise SystemExit(f"the cached part did not grow: {seen}")


if __name__ == "__main__":
    main()
