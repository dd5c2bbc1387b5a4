"""Conversations by content: whose beginning is all of another, and who only begins alike."""

from typing import Any

import pytest

from agentcache.router.fingerprint import HOLDERS, TEXT_CHUNK, Chain, Fingerprints, chain_of
from agentcache.web.fields import Fields

SYSTEM = {"role": "system", "content": "You are an agent. " * 500}
NESTED: list[Any] = []
for _ in range(20_000):
    NESTED = [NESTED]


def says(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def chat(*messages: dict[str, Any], scope: str = "salt", **more: Any) -> Chain:
    return chain_of(Fields({"messages": list(messages), **more}), scope, "m")


def test_a_request_that_goes_on_is_the_same_conversation() -> None:
    known = Fingerprints()
    known.learn(chat(SYSTEM, says("fix it")), "a")
    assert known.usual(chat(SYSTEM, says("fix it"), says("done", "assistant"), says("thanks"))) == "a"
    assert known.usual(chat(SYSTEM, says("fix it"))) == "a"


def test_a_shared_beginning_is_not_the_same_conversation() -> None:
    known = Fingerprints()
    known.learn(chat(SYSTEM, says("fix it")), "a")
    assert known.usual(chat(SYSTEM, says("write it"))) == ""
    assert known.usual(chat(SYSTEM)) == ""
    assert known.shared_tokens(chat(SYSTEM, says("write it"))).keys() == {"a"}


def test_the_deepest_end_wins() -> None:
    known = Fingerprints()
    known.learn(chat(SYSTEM, says("one")), "a")
    known.learn(chat(SYSTEM, says("one"), says("1", "assistant"), says("two")), "b")
    assert known.usual(chat(SYSTEM, says("one"), says("1", "assistant"), says("two"), says("three"))) == "b"
    assert known.usual(chat(SYSTEM, says("one"), says("another", "assistant"))) == "a"


def test_a_compacted_conversation_is_learned_anew() -> None:
    known = Fingerprints()
    known.learn(chat(SYSTEM, says("one"), says("1", "assistant"), says("two")), "a")
    compacted = chat(SYSTEM, says("summary of what was"), says("two"))
    assert known.usual(compacted) == ""
    known.learn(compacted, "b")
    assert known.usual(compacted) == "b"


def test_what_is_shared_grows_with_what_is_alike() -> None:
    known = Fingerprints()
    known.learn(chat(SYSTEM, says("a" * 400)), "a")
    known.learn(chat(SYSTEM, says("b" * 400)), "b")
    shared = known.shared_tokens(chat(SYSTEM, says("b" * 400), says("more")))
    assert shared["b"] > shared["a"] > 2000
    assert known.shared_tokens(chat(says("other"))) == {}


@pytest.mark.parametrize(
    "other",
    [
        chat(SYSTEM, says("fix it"), scope="another tenant's salt"),
        chat(SYSTEM, says("fix it"), tools=[{"type": "function"}]),
        chain_of(Fields({"messages": [SYSTEM, says("fix it")]}), "salt", "another model"),
        chat(says("fix it"), SYSTEM),
        chat({**SYSTEM, "content": SYSTEM["content"] + "fix it"}),
    ],
)
def test_nothing_is_shared_across(other: Chain) -> None:
    """Tenants, models, tools, order; and no message runs into the next."""
    known = Fingerprints()
    known.learn(chat(SYSTEM, says("fix it")), "a")
    assert known.usual(other) == ""


def test_marks_that_clients_move_do_not_count() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    first = {"role": "user", "content": [{"type": "text", "text": "fix it", **mark}]}
    later = {"role": "user", "content": [{"type": "text", "text": "fix it"}]}
    last = {"role": "user", "content": [{"type": "text", "text": "go on", **mark}]}
    known = Fingerprints()
    known.learn(chat(first, system=[{"text": "s", **mark}]), "a")
    assert known.usual(chat(later, last, system=[{"text": "s"}])) == "a"


def test_the_forms_of_other_routes() -> None:
    known = Fingerprints()
    known.learn(chain_of(Fields({"instructions": "be good", "input": [says("one")]})), "a")
    longer = Fields({"instructions": "be good", "input": [says("one"), says("1", "assistant"), says("two")]})
    assert known.usual(chain_of(longer)) == "a"
    known.learn(chain_of(Fields({"input": "one question"})), "b")
    assert known.usual(chain_of(Fields({"input": "one question"}))) == "b"


def test_a_plain_prompt_goes_by_whole_chunks() -> None:
    text = "x" * (2 * TEXT_CHUNK) + "tail"
    known = Fingerprints()
    known.learn(chain_of(Fields({"prompt": text})), "a")
    assert known.usual(chain_of(Fields({"prompt": text + "and its completion" * 100}))) == "a"
    assert known.usual(chain_of(Fields({"prompt": "y" + text}))) == ""
    assert chain_of(Fields({"prompt": "short"})) == Chain()
    known.learn(chain_of(Fields({"prompt": [text]})), "b")
    assert known.usual(chain_of(Fields({"prompt": text}))) == "b"


def test_a_prompt_of_tokens_goes_by_whole_chunks() -> None:
    tokens = list(range(200))
    known = Fingerprints()
    known.learn(chain_of(Fields({"prompt": tokens})), "a")
    assert known.usual(chain_of(Fields({"prompt": [[*tokens, 5, 6]]}))) == "a"
    assert known.usual(chain_of(Fields({"prompt": [1, *tokens]}))) == ""


@pytest.mark.parametrize(
    "body", [{}, {"messages": None}, {"prompt": 7}, {"messages": NESTED}, {"prompt": []}]
)
def test_what_is_no_prompt_has_no_chain(body: dict[str, Any]) -> None:
    chain = chain_of(Fields(body))
    known = Fingerprints()
    known.learn(chain, "a")
    assert (chain.tokens, known.usual(chain), known.shared_tokens(chain)) == (0, "", {})


def test_the_table_is_bounded_and_keeps_what_is_used() -> None:
    known = Fingerprints(max_points=100)
    known.learn(chat(SYSTEM, says("first")), "a")
    for number in range(300):
        known.learn(chat(SYSTEM, says(f"question {number}")), "b")
        assert len(known) <= 100
    assert known.usual(chat(SYSTEM, says("first"))) == ""
    assert known.usual(chat(SYSTEM, says("question 299"))) == "b"
    assert known.shared_tokens(chat(SYSTEM, says("new"))).keys() == {"a", "b"}


def test_a_point_remembers_a_few_workers() -> None:
    known = Fingerprints()
    for number in range(HOLDERS + 3):
        known.learn(chat(SYSTEM), f"w{number}")
    assert len(known.shared_tokens(chat(SYSTEM))) == HOLDERS
    assert known.usual(chat(SYSTEM)) == f"w{HOLDERS + 2}"
