"""Chat templates in the manners of common model families, each with what is special about it."""

CHATML_DEFAULT_SYSTEM = """
{%- for message in messages %}
{%- if loop.first and message['role'] != 'system' %}
{{- '<|im_start|>system\nBe helpful.<|im_end|>\n' }}
{%- endif %}
{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""

# Insists on alternating roles, knows no system message, trims, ends only assistant turns.
BRACKETS = """
{{- bos_token }}
{%- for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('roles must alternate user, assistant') }}
{%- endif %}
{%- if message['role'] == 'user' %}
{{- '[INST] ' + message['content'] | trim + ' [/INST]' }}
{%- elif message['role'] == 'assistant' %}
{{- ' ' + message['content'] | trim + eos_token }}
{%- else %}{{- raise_exception('only user and assistant') }}{%- endif %}
{%- endfor %}
"""

# Puts the system text into the first user turn itself, so a system message can't stand alone.
FOLDED = """
{%- if messages[0]['role'] == 'system' %}
{%- set head = '<<' + messages[0]['content'] + '>>\n' %}{%- set rest = messages[1:] %}
{%- else %}{%- set head = '' %}{%- set rest = messages %}{%- endif %}
{{- bos_token }}
{%- for message in rest %}
{{- '<|im_start|>' + message['role'] + '\n' }}
{{- (head if loop.first else '') + message['content'] + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""

# Describes tools by itself, wraps tool results, drops old reasoning, opens turns with an empty thought.
THINKING = """
{%- set ns = namespace(last=-1) %}
{%- for message in messages %}
{%- if message.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}
{%- endfor %}
{%- if tools %}
{{- '<|im_start|>system\n' }}
{%- if messages and messages[0].role == 'system' %}{{- messages[0].content + '\n' }}{%- endif %}
{%- for tool in tools %}{{- tool | tojson + '\n' }}{%- endfor %}{{- '<|im_end|>\n' }}
{%- elif messages and messages[0].role == 'system' %}
{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{%- set text = message.content.split('</think>')[-1].lstrip('\n') %}
{{- '<|im_start|>assistant\n' + ('<think>\n\n</think>\n\n' if loop.index0 > ns.last else '') }}
{{- text + '<|im_end|>\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
{%- elif message.role == 'user' or not loop.first %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' + ('' if enable_thinking else '<think>\n\n</think>\n\n') }}
{%- endif %}
"""

# Ends the whole conversation instead of each turn: a shorter one is no prefix of a longer one.
ENDS_ONCE = """
{%- for message in messages %}{{- message['role'] + ': ' + message['content'] + '\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- 'assistant: ' }}{%- else %}{{- eos_token }}{%- endif %}
"""

# Insists on today's date, and marks what a model was trained on.
DATED = """
{{- '<|im_start|>system\nToday is ' + strftime_now('%d %b %Y') + '<|im_end|>\n' }}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{{- '<|im_start|>assistant\n' }}{% generation %}{{- message.content }}{% endgeneration %}{{- '<|im_end|>\n' }}
{%- else %}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""

ALL = {
    "default_system": CHATML_DEFAULT_SYSTEM,
    "brackets": BRACKETS,
    "folded": FOLDED,
    "thinking": THINKING,
    "ends_once": ENDS_ONCE,
    "dated": DATED,
    "none": None,
}
