"""First documents that a reader knows, beside those of its golden files, and others that only look like them."""

from collections.abc import Mapping, Sequence
from typing import Any

EVENT = {"source": "agent", "action": "system"}
USER = {"role": "user", "content": "T"}
ROW = {"timestamp": 5, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}

LOOKALIKES: Mapping[str, tuple[Sequence[Any], Sequence[Any]]] = {
    "agentcache": ([{"agentcache_trace": 9}], [{"name": "a"}, []]),
    "Weka kv-cache-tester (AgentX)": (
        [{"requests": [], "block_size": 64, "hash_id_scope": "global"}],
        [{}, {"requests": []}, [], "x", {"block_size": 64, "requests": []}],
    ),
    "Claude Code": (
        [
            {"type": "user", "sessionId": "s"},
            {"type": "summary", "leafUuid": "x"},
            {"type": "file-history-snapshot", "snapshot": {}},
        ],
        [{"type": "response_item", "payload": {}, "timestamp": ""}, {"type": "user"}, {"type": []}, []],
    ),
    "tau-bench": (
        [{"task_id": 1, "traj": []}, [{"task_id": 1, "traj": []}]],
        [[], {"traj": []}, {"task_id": 1, "traj": 1}, "x"],
    ),
    "SWE-agent": (
        [{"history": [{**USER, "agent": "main"}]}, {"trajectory": [{"query": []}]}],
        [
            {"history": [{**USER, "name": "Expert"}]},
            {"trajectory": []},
            {"trajectory": "x"},
            [],
        ],
    ),
    "LMCache agent trace": (
        [{"timestamp": 1, "input": "T", "output": "A", "session_id": "s"}],
        [{"input": "T"}, "x"],
    ),
    "TraceLab rounds": (
        [{"session_id": "a", "round_index": 0, "input_tokens_total": 1}],
        [{"session_id": "a"}, []],
    ),
    "Dynamo agentic_mooncake": (
        [{"schema": "dynamo.agentic_mooncake"}, {"request_id": "r", "hash_ids": []}],
        [{"schema": "dynamo.request.trace.v1"}, ROW, []],
    ),
    "Mooncake": (
        [ROW],
        [{**ROW, "chat_id": 3, "parent_chat_id": -1}, {**ROW, "session_id": "s"}, {"timestamp": 1}, []],
    ),
    "Azure LLM inference": (
        [{"TIMESTAMP": "", "ContextTokens": "", "GeneratedTokens": ""}],
        [{"Timestamp": "", "Request tokens": ""}, []],
    ),
    "Codex rollout": (
        [{"type": "session_meta", "payload": {}}],
        [{"type": "session_meta"}, {"type": "user", "payload": {}}, {"type": [], "payload": {}}, []],
    ),
    "OpenHands": (
        [EVENT, [EVENT], {"history": [EVENT]}, {"messages": [], "resolved": True}],
        [
            {"messages": []},
            {"messages": [], "tools": [], "trajectory_format": "mini-swe-agent-1.1"},
            {"history": [{"agent": "primary"}]},
            {"source": "agent"},
            [],
            [USER],
        ],
    ),
    "aiperf dag_jsonl": (
        [{"session_id": "a", "turns": []}],
        [{"session_id": "a", "turns": [{"input_delta": []}]}, {"session_id": "a"}, []],
    ),
    "mini-swe-agent": (
        [{"messages": []}, [USER]],
        [
            {"messages": [], "trajectory_format": "other-1"},
            {"trajectory": []},
            [],
            [{"from": "human", "value": "x"}],
            3,
        ],
    ),
}
"""By format: accepted, and not."""
