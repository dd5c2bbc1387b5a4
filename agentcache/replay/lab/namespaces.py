"""Models of a trace apart: what one has computed is of no use to another, so equal text is not the same page to both.

a workload's pages  ──by the model of each call──►  pages of one model each, and what they say (`content`)
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from agentcache.replay.paged import ROOT, PagedCall, PagedSession, Pages, Workload


def apart(workload: Workload) -> Workload:
    """The same with pages of their own for every model that its calls name; one that names one model only is as it was.

    A call that names none is of the model before it in its session.
    """
    models = {session.index: list(_models(session)) for session in workload.sessions}
    named = dict.fromkeys(model for of_one in models.values() for model in of_one)
    if len(named) <= 1:
        return workload
    content, numbers = [np.array([ROOT], dtype=np.int32)], dict[str, Pages]()
    for model in named:
        paths = (
            path
            for session in workload.sessions
            for call, its in zip(session.calls, models[session.index], strict=True)
            for path in (call.prompt, call.output)
            if its == model
        )
        said = np.zeros(len(workload.before), dtype=np.bool_)
        for path in paths:
            said[path] = True
        pages = np.flatnonzero(said).astype(np.int32)
        numbers[model] = np.zeros(len(workload.before), dtype=np.int32)
        numbers[model][pages] = np.arange(len(pages)) + sum(map(len, content))
        content.append(pages)
    before = [np.array([ROOT], dtype=np.int32)]
    before += [
        numbers[model][workload.before[pages]] for model, pages in zip(named, content[1:], strict=True)
    ]
    sessions = tuple(_numbered(session, models[session.index], numbers) for session in workload.sessions)
    return replace(
        workload, sessions=sessions, before=np.concatenate(before), content=np.concatenate(content)
    )


def _models(session: PagedSession) -> Iterator[str]:
    model = next((call.facts.model for call in session.calls if call.facts.model), "")
    for call in session.calls:
        model = call.facts.model or model
        yield model


def _numbered(session: PagedSession, models: list[str], numbers: Mapping[str, Pages]) -> PagedSession:
    def numbered(call: PagedCall, model: str) -> PagedCall:
        return replace(call, prompt=numbers[model][call.prompt], output=numbers[model][call.output])

    calls = zip(session.calls, models, strict=True)
    return replace(session, calls=tuple(numbered(call, model) for call, model in calls))
