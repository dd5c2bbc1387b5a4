"""The static tree of all prompts against the prompts themselves."""

import random

from agentcache.replay.lab.trie import CallNodes, PromptTrie, prompt_trie
from agentcache.replay.paged import PagedCall
from tests.worlds import Says, calls_of, random_workload, workload


def way_up(trie: PromptTrie, node: int) -> list[int]:
    """The nodes from one to the root, the root not among them."""
    way = []
    while node:
        way.append(node)
        node = trie.above[node]
    return way


def pages_to(trie: PromptTrie, node: int) -> int:
    return sum(trie.pages[at] for at in way_up(trie, node))


def test_prompts_that_part_share_a_node() -> None:
    paged = workload([Says([1, 2, 3])], [Says([1, 2, 4, 5])])
    trie = prompt_trie(paged)
    left, right = (trie.of(call) for call in calls_of(paged))
    assert trie.above[left.prompt] == trie.above[right.prompt]
    assert [trie.pages[node] for node in way_up(trie, left.prompt)] == [1, 2]
    assert [trie.pages[node] for node in way_up(trie, right.prompt)] == [2, 2]


def test_a_prompt_that_goes_on_ends_a_node() -> None:
    paged = workload([Says([1, 2], answer=2), Says([1, 2, 3, 4, 5, 6])])
    trie = prompt_trie(paged)
    first, second = (trie.of(call) for call in calls_of(paged))
    assert [trie.pages[node] for node in way_up(trie, second.prompt)] == [2, 2, 2]
    assert pages_to(trie, first.whole) == 4
    assert first.reusable == first.prompt


def test_a_page_that_is_always_computed_is_a_node_of_its_own() -> None:
    paged = workload([Says([1, 2, 3], spare=0)])
    trie = prompt_trie(paged)
    ends = trie.of(calls_of(paged)[0])
    assert (pages_to(trie, ends.reusable), pages_to(trie, ends.prompt)) == (2, 3)


def test_a_call_without_pages_ends_at_the_root() -> None:
    paged = workload([Says([])], [Says([1])])
    trie = prompt_trie(paged)
    assert trie.of(calls_of(paged)[0]) == CallNodes(0, 0, 0, place=0)


def test_random_workloads() -> None:
    for seed in range(200):
        paged = random_workload(random.Random(seed))
        trie = prompt_trie(paged)
        calls = calls_of(paged)
        for call in calls:
            ends = trie.of(call)
            assert pages_to(trie, ends.reusable) == call.reusable
            assert pages_to(trie, ends.prompt) == len(call.prompt)
            assert pages_to(trie, ends.whole) == call.peak_pages
        for node in range(1, len(trie.above)):
            assert trie.depth[node] + trie.pages[node] == pages_to(trie, node)
            assert trie.above[node] < node
            _assert_its_calls_are_in_its_range(trie, node, calls)


def _assert_its_calls_are_in_its_range(trie: PromptTrie, node: int, calls: list[PagedCall]) -> None:
    reusing = {trie.of(call).place for call in calls if node in way_up(trie, trie.of(call).reusable)}
    assert reusing == set(range(int(trie.first[node]), int(trie.beyond[node])))
