"""Snippets of documentation, run as a reader runs them, against another address than the one that they name.

A block to be run stands behind a line `<!-- runs: NAME -->`.
"""

import asyncio
import json
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

ROUTER = "http://127.0.0.1:8000"
_BLOCK = re.compile(r"(?:^<!-- runs: ([\w-]+) -->\n)?^```(\w*)\n(.*?)^```", re.M | re.S)
Json = dict[str, Any]


@dataclass(frozen=True)
class Snippet:
    """A block of code. `name` is "" where it is not said to run."""

    name: str
    language: str
    code: str

    def at(self, url: str) -> str:
        """The code for a router that listens elsewhere."""
        assert ROUTER in self.code, f"{self.name} names no router at {ROUTER}"
        return self.code.replace(ROUTER, url)


def snippets_of(text: str) -> list[Snippet]:
    """Every block, in order."""
    return [Snippet(*found) for found in _BLOCK.findall(text)]


async def run_python(snippet: Snippet, url: str, **given: Any) -> tuple[Mapping[str, Any], list[str]]:
    """The names that it leaves, and the lines that it prints. `given` are names that its reader has already.

    It runs in a thread, so that whoever calls can serve it. Errors: whatever it raises
    """
    said: list[str] = []
    names = {"print": lambda *parts: said.append(" ".join(map(str, parts))), **given}
    code = compile(snippet.at(url), f"<snippet {snippet.name}>", "exec")
    await asyncio.to_thread(exec, code, names)
    return names, said


async def run_commands(snippet: Snippet, url: str) -> list[Json]:
    """The answers to its `curl` commands, asked without `curl`."""
    lines = snippet.at(url).replace("\\\n", " ").splitlines()
    async with httpx2.AsyncClient(timeout=60) as http:
        return [await _asked(http, shlex.split(line, comments=True)) for line in lines]


async def run_shell(snippet: Snippet, url: str) -> list[Json]:
    """The same, as a shell runs them."""
    shell = await asyncio.create_subprocess_exec(
        "sh", "-ec", snippet.at(url), stdout=asyncio.subprocess.PIPE, stderr=sys.stderr
    )
    said, _ = await shell.communicate()
    assert shell.returncode == 0
    text, answers = said.decode(), []
    while text:
        answer, end = json.JSONDecoder().raw_decode(text)
        answers.append(answer)
        text = text[end:].lstrip()
    return answers


async def _asked(http: httpx2.AsyncClient, words: list[str]) -> Json:
    """One `curl -s [-X METHOD] [-H 'NAME: VALUE']… [-d BODY] URL`."""
    command, *rest = words
    assert command == "curl"
    headers, method, body, urls = {}, "", None, []
    while rest:
        word = rest.pop(0)
        match word:
            case "-s":
                pass
            case "-X":
                method = rest.pop(0)
            case "-H":
                name, _, value = rest.pop(0).partition(": ")
                headers[name] = value
            case "-d":
                body = rest.pop(0)
            case _:
                assert not word.startswith("-"), f"{word} is not read here"
                urls.append(word)
    (url,) = urls
    answer = await http.request(
        method or ("GET" if body is None else "POST"), url, headers=headers, content=body
    )
    found: Json = answer.json()
    return found
