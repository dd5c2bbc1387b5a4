"""Token ids for blocks: equal where the trace says so, different wherever it does not."""

from typing import Any

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.replay.spelling import TEXT_ONLY, Spelling, vocabulary
from agentcache.replay.trace import Call, Facts, Hidden, Session

WORDS = range(100, 600)


def session(*calls: Call, scope: str = "s", block_tokens: int = 4, **more: Any) -> Session:
    return Session("one", calls, "here", block_tokens, scope, **more)


def spelled(one: Session, scale: int = 0) -> list[Any]:
    return list(Spelling(WORDS, scale).prompts(one))


def test_equal_traces_are_spelled_equally_in_the_vocabulary_and_kept_blocks_stay() -> None:
    one = session(Call(0, blocks=(1, 2, 3)), Call(2, blocks=(9,)))
    first, second = spelled(one)
    assert spelled(one) == [first, second]
    assert (len(first), len(second)) == (12, 12)
    assert first[:8] == second[:8]
    assert first[8:] != second[8:]
    assert {*first, *second} <= set(WORDS)


def test_the_rest_of_a_prompt_is_like_no_other() -> None:
    """10 tokens are two blocks and a half; a prompt without any is one token."""
    facts = Facts(prompt_tokens=10)
    first, second, none = spelled(
        session(Call(0, blocks=(1, 2), facts=facts), Call(2, facts=facts), Call(0), block_tokens=4)
    )
    assert len(first) == len(second) == 10
    assert first[:8] == second[:8]
    assert first[8:] != second[8:]
    assert len(none) == 1


def test_a_hidden_prefix_goes_by_its_name() -> None:
    calls = (Call(0, blocks=(1, 2, 3)),)
    (one,), (other,), (third,) = (
        spelled(session(*calls, scope=scope, hidden=Hidden(name, 9)))
        for scope, name in (("a", "x"), ("b", "x"), ("a", "y"))
    )
    assert one[:8] == other[:8]
    assert one[8:] != other[8:]
    assert one[:4] != third[:4]
    assert one[8:] == third[8:]


def test_blocks_of_few_tokens_are_never_equal_by_chance() -> None:
    """500 tokens spell 500 blocks of one."""
    one = session(Call(0, blocks=tuple(range(len(WORDS)))))
    (prompt,) = spelled(one, scale=1)
    assert sorted(prompt) == list(WORDS)
    assert spelled(one, scale=1) == [prompt]


def test_more_blocks_than_can_be_spelled_are_refused() -> None:
    with pytest.raises(CacheError, match=r"in 1 tokens: raise --scale") as caught:
        spelled(session(Call(0, blocks=tuple(range(len(WORDS) + 1)))), scale=1)
    assert caught.value.kind is Kind.BAD_REQUEST


def test_messages_are_sent_as_they_are() -> None:
    message = {"role": "user", "content": "T"}
    chat = Session("one", (Call(0, (message,)), Call(1, (message,))), "here")
    assert list(TEXT_ONLY.prompts(chat)) == [[message], [message, message]]


def test_a_vocabulary_has_no_special_tokens() -> None:
    assert vocabulary({"agentcache": {"vocab_size": 6, "special_tokens": [0, 2]}}) == [1, 3, 4, 5]


@pytest.mark.parametrize("about", [{}, {"agentcache": {"vocab_size": 6}}, {"agentcache": None}])
def test_a_server_that_does_not_say_its_vocabulary(about: dict[str, Any]) -> None:
    with pytest.raises(CacheError, match="does not say which token ids") as caught:
        vocabulary(about)
    assert caught.value.kind is Kind.BAD_REQUEST
