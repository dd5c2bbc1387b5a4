"""Answers as servers send them, for whoever reads what passes: OpenAI, Anthropic, vLLM and SGLang."""

from typing import Final

OPENAI_CHAT: Final = (
    b'data: {"id":"chatcmpl-BT1","object":"chat.completion.chunk","created":1746190000,"model":"gpt-4.1-2025-04-14",'
    b'"service_tier":"default","system_fingerprint":"fp_b38","choices":[{"index":0,"delta":{"role":"assistant",'
    b'"content":null,"tool_calls":[{"index":0,"id":"call_DdmO9pD3xa9XTPNJ32zg2hcA","type":"function","function":'
    b'{"name":"get_weather","arguments":""}}],"refusal":null},"logprobs":null,"finish_reason":null}],'
    b'"usage":null}\n\n'
    b'data: {"id":"chatcmpl-BT1","object":"chat.completion.chunk","created":1746190000,"model":"gpt-4.1-2025-04-14",'
    b'"service_tier":"default","system_fingerprint":"fp_b38","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,'
    b'"function":{"arguments":"{\\"name\\":\\"Par\xc3\xads"}}]},"logprobs":null,"finish_reason":null}],'
    b'"usage":null}\n\n'
    b'data: {"id":"chatcmpl-BT1","object":"chat.completion.chunk","created":1746190000,"model":"gpt-4.1-2025-04-14",'
    b'"service_tier":"default","system_fingerprint":"fp_b38","choices":[{"index":0,"delta":{},"logprobs":null,'
    b'"finish_reason":"tool_calls"}],"usage":null}\n\n'
    b'data: {"id":"chatcmpl-BT1","object":"chat.completion.chunk","created":1746190000,"model":"gpt-4.1-2025-04-14",'
    b'"choices":[],"usage":{"prompt_tokens":80,"completion_tokens":16,"total_tokens":96}}\n\n'
    b"data: [DONE]\n\n"
)
VLLM_CHAT: Final = (
    b'data: {"id":"chatcmpl-6f","object":"chat.completion.chunk","created":1751000000,"model":"Qwen/Qwen3-8B",'
    b'"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n'
    b'data: {"id":"chatcmpl-6f","object":"chat.completion.chunk","created":1751000000,"model":"Qwen/Qwen3-8B",'
    b'"choices":[{"index":0,"delta":{"tool_calls":[{"id":"chatcmpl-tool-aa01","type":"function","index":0,"function":'
    b'{"name":"read_file"}}]},"logprobs":null,"finish_reason":null}]}\n\n'
    b'data: {"id":"chatcmpl-6f","object":"chat.completion.chunk","created":1751000000,"model":"Qwen/Qwen3-8B",'
    b'"choices":[{"index":0,"delta":{"tool_calls":[{"id":"chatcmpl-tool-aa02","type":"function","index":1,"function":'
    b'{"name":"bash"}}]},"logprobs":null,"finish_reason":null}]}\n\n'
    b'data: {"id":"chatcmpl-6f","object":"chat.completion.chunk","created":1751000000,"model":"Qwen/Qwen3-8B",'
    b'"choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"tool_calls",'
    b'"stop_reason":null}]}\n\n'
    b"data: [DONE]\n\n"
)
SGLANG_CHAT: Final = (
    b'data: {"id":"9d","object":"chat.completion.chunk","created":1751000000,"model":"m",'
    b'"choices":[{"index":0,"delta":'
    b'{"role":"assistant","content":null,"reasoning_content":null,"tool_calls":[{"id":"call_0f","index":0,"type":'
    b'"function","function":{"name":"bash","arguments":""}}]},"logprobs":null,"finish_reason":null,'
    b'"matched_stop":null}],'
    b'"usage":null}\n\n'
    b'data: {"id":"9d","object":"chat.completion.chunk","created":1751000000,"model":"m",'
    b'"choices":[{"index":0,"delta":'
    b'{"role":null,"content":null,"reasoning_content":null,"tool_calls":[{"id":null,"index":0,"type":"function",'
    b'"function":{"name":null,"arguments":"{}"}}]},"logprobs":null,"finish_reason":null,"matched_stop":null}],'
    b'"usage":null}\n\n'
    b'data: {"id":"9d","object":"chat.completion.chunk","created":1751000000,"model":"m",'
    b'"choices":[{"index":0,"delta":'
    b'{"role":null,"content":null,"reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":'
    b'"tool_calls","matched_stop":null}],"usage":null}\n\n'
    b"data: [DONE]\n\n"
)
SPACED_TEXT: Final = (
    b': a comment\n\ndata: {"id": "cmpl-1", "object": "text_completion", "choices": [{"index": 0,'
    b' "text": "\\"finish_reason'
    b'\\":\\"", "logprobs": null, "finish_reason": null}]}\n\n'
    b'data: {"id": "cmpl-1", "object": "text_completion", "choices": [{"index": 0, "text": "", "logprobs": null, '
    b'"finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
)
OPENAI_CHAT_WHOLE: Final = (
    b'{\n  "id": "chatcmpl-B9M",\n  "object": "chat.completion",\n  "choices": [\n    {\n      "index": 0,\n'
    b'      "message": {\n        "role": "assistant",\n        "content": null,'
    b'\n        "tool_calls": [\n          {\n'
    b'            "id": "call_abc123",\n            "type": "function",\n            "function": {\n'
    b'              "name": "get_current_weather",'
    b'\n              "arguments": "{\\n\\"location\\": \\"Boston\\"\\n}"\n'
    b'            }\n          }\n        ]\n      },\n      "logprobs": null,\n      "finish_reason": "tool_calls"\n'
    b'    }\n  ],\n  "usage": {"prompt_tokens": 82, "completion_tokens": 17, "total_tokens": 99}\n}\n'
)
OLD_FUNCTION_WHOLE: Final = (
    b'{"id":"chatcmpl-7","choices":[{"index":0,"message":{"role":"assistant","content":null,"function_call":{"name":'
    b'"get_weather","arguments":"{}"}},"finish_reason":"function_call"}]}'
)
CUSTOM_TOOL_WHOLE: Final = (
    b'{"id":"chatcmpl-8","choices":[{"index":0,"message":{"role":"assistant","tool_calls":[{"id":"call_1","type":'
    b'"custom","custom":{"name":"code_exec","input":"print()"}}]},"finish_reason":"tool_calls"}]}'
)
ANTHROPIC: Final = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_014p","type":"message",'
    b'"role":"assistant",'
    b'"model":"claude-opus-4-1","stop_sequence":null,"usage":{"input_tokens":472,"output_tokens":2},"content":[],'
    b'"stop_reason":null}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":""}}'
    b"\n\n"
    b'event: ping\ndata: {"type": "ping"}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":'
    b'"Okay \xe2\x80\x93"}}\n\n'
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":1,'
    b'"content_block":{"type":"server_tool_use",'
    b'"id":"srvtoolu_1","name":"web_search","input":{}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":2,'
    b'"content_block":{"type":"tool_use","id":'
    b'"toolu_01T1x1fJ34qAmk2tNTrN7Up6","name":"get_weather","input":{}}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta",'
    b'"partial_json":"{\\"name\\":"}}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"tool_use",'
    b'"stop_sequence":null},"usage":'
    b'{"output_tokens":89}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
ANTHROPIC_WHOLE: Final = (
    b'{"id":"msg_01","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"Done."}],'
    b'"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":3}}'
)
RESPONSES: Final = (
    b'event: response.created\ndata: {"type":"response.created","sequence_number":0,'
    b'"response":{"id":"resp_67","object":'
    b'"response","status":"in_progress","output":[],"tools":[{"type":"function","name":"get_weather"}]}}\n\n'
    b'event: response.output_item.added\ndata: {"type":"response.output_item.added","sequence_number":2,'
    b'"output_index":0,'
    b'"item":{"id":"msg_1","type":"message","status":"in_progress","content":[],"role":"assistant"}}\n\n'
    b'event: response.output_item.added\ndata: {"type":"response.output_item.added","sequence_number":3,'
    b'"output_index":1,'
    b'"item":{"id":"fc_67","type":"function_call","status":"in_progress","call_id":"call_unDR","name":"get_weather",'
    b'"arguments":""}}\n\n'
    b'event: response.output_item.added\ndata: {"type":"response.output_item.added","sequence_number":4,'
    b'"output_index":2,'
    b'"item":{"id":"ws_1","type":"web_search_call","status":"in_progress"}}\n\n'
    b'event: response.completed\ndata: {"type":"response.completed","sequence_number":9,'
    b'"response":{"id":"resp_67","object":'
    b'"response","status":"completed","output":[{"id":"fc_67","type":"function_call","call_id":"call_unDR","name":'
    b'"get_weather","arguments":"{}"}]}}\n\n'
)
RESPONSES_WHOLE: Final = (
    b'{"id":"resp_1","object":"response","status":"completed","output":[{"id":"rs_1","type":"reasoning",'
    b'"summary":[]},'
    b'{"type":"local_shell_call","id":"lsh_1","call_id":"call_9","action":{"type":"exec","command":["ls"]},"status":'
    b'"completed"}],"tools":[{"type":"local_shell"}],"usage":null}'
)
RESPONSES_CUT: Final = (
    b'event: response.incomplete\ndata: {"type":"response.incomplete","response":{"status":"incomplete",'
    b'"incomplete_details":{"reason":"max_output_tokens"}}}\n\n'
)
