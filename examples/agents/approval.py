"""An agent that gives refunds, and asks a person before each one. Try what outlives the process:

agentree run examples/agents/approval.py --journal --run-id r1 --input "Order 48 is lost, refund 15 dollars."
agentree runs show r1
agentree runs answer r1 tools:call_1 true
agentree runs resume r1

The answer may come days later, in another process. Say false, or
'{"approved": false, "reason": "it was never sent back"}', and the model has to go on without it.
"""

from agentree import Message, ToolCall, ToolResult, assistant, react, tool, tool_call, tool_result, user


@tool(approve=True)
def refund(order: int, dollars: int) -> str:
    """Pay money back for an order.

    Args:
        order: Number of the order.
        dollars: How much.
    """
    return f"paid back {dollars} dollars for order {order}"


def shot(question: str, order: int, dollars: int, answer: str, *, error: str = "") -> list[Message]:
    """A worked exchange: small models follow what they have seen."""
    call = ToolCall("shot", "refund", {"order": order, "dollars": dollars})
    result = ToolResult(call, error or refund(order, dollars), error=bool(error))
    final = assistant(f'{{"name": "final_answer", "arguments": {{"answer": "{answer}"}}}}')
    return [user(question), tool_call(call), tool_result(result), final]


WORN = "this call was not approved: it was worn"
SHOTS = (
    *shot("Order 61 is too small, refund 22 dollars.", 61, 22, "I could not pay back order 61.", error=WORN),
    *shot("Order 12 is lost, refund 30 dollars.", 12, 30, "I paid back 30 dollars for order 12."),
    *shot("Please refund 7 dollars for order 95.", 95, 7, "I paid back 7 dollars for order 95."),
)
agent = react(tools=[refund], output=str, instructions="Give refunds.", examples=SHOTS)
