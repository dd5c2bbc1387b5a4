"""An engine inside your program: two turns of a session; the second computes only what is new."""

from collections.abc import Sequence

from agentcache.config import EngineSettings
from agentcache.engine.api import Admitted, Finished, GenerateRequest, Sampling, Token
from agentcache.engine.build import build_engine, load_tokenizer_for
from agentcache.ids import checked_id
from agentcache.types import SessionTag

settings = EngineSettings(
    model="tiny-all", full_slots=512, swa_slots=256, mamba_slots=16
)  # small pools, quick start
engine = build_engine(settings)
tokenizer = load_tokenizer_for(settings)
print(f"{engine.info.model}: {', '.join(engine.info.components)}; {engine.info.reason}")


def turn(name: str, messages: Sequence[dict[str, str]], max_tokens: int = 12) -> tuple[str, int]:
    """Generate an answer to a chat; the text (noise: the weights are random) and the tokens not computed again."""
    prompt = tokenizer.render(messages)
    request = GenerateRequest(
        request_id=name,
        tokens=prompt.tokens,
        user_end_tokens=prompt.user_end_tokens,
        max_tokens=max_tokens,
        sampling=Sampling(temperature=0.8, seed=1),
        stop_tokens=tokenizer.stop_tokens,
        session=SessionTag(checked_id("my-agent")),
    )
    engine.submit(request)
    said, cached = [], 0
    while (
        not engine.idle()
    ):  # other requests may be submitted between two steps: they are decoded in one batch
        for event in engine.step():
            match event:
                case Admitted(cached_tokens=restored):
                    cached = restored
                case Token(token=token):
                    said.append(token)
                case Finished(reason=reason, error=error):
                    print(
                        f"{name}: {len(prompt.tokens)} prompt tokens, {cached} cached, ended by {reason}",
                        error or "",
                    )
    return tokenizer.decode(said), cached


tool_output = "\n".join(f"tests/test_{number}.py::test_parses_header PASSED" for number in range(60))
chat = [
    {"role": "system", "content": "You fix bugs in a repository, one shell command at a time."},
    {"role": "user", "content": f"Here is the output of the test suite:\n{tool_output}\nWhat is next?"},
]
answer, first = turn("first turn", chat)
chat += [{"role": "assistant", "content": answer}, {"role": "user", "content": "Go on."}]
_, second = turn("second turn", chat)
assert first == 0, "nothing was cached before"
assert second >= engine.info.grid_tokens, "the whole chunks of the first turn are restored"

engine.cache.close_session("my-agent")
assert engine.cache.stats().open_references == 0
