"""Sixteen notes become orders: the few-shot prefix is computed once, sixteen branches write side by side.

agentree run examples/agents/extract.py --input ""
agentree run examples/agents/extract.py --input "Four lamps to Bern, please."
"""

import asyncio
from typing import Annotated

from pydantic import BaseModel, Field

from agentree import Runtime, assistant, system, user

Name = Annotated[str, Field(min_length=1, max_length=24)]


class Order(BaseModel):
    quantity: Annotated[int, Field(ge=1, le=999)]
    item: Name
    city: Name


NOTES = """Please send 12 folding chairs to our shop in Lisbon.
Oslo needs 3 espresso machines before Friday.
We would like 40 blue pens, delivered to Nairobi.
Can you ship 7 bicycles to Ghent?
Order for Quito: 250 paper cups.
Our office in Kyoto is out of pencils, so 90 of them.
2 pianos for the school in Tartu, thank you.
The bakery in Lyon asks for 15 bread baskets.
Send 60 candles to the hotel in Riga.
Lima wants 8 garden chairs this month.
5 violins go to the music hall in Vienna.
A new order from Accra: 33 umbrellas.
Could Dublin get 18 rain coats?
For the library in Turin: 4 reading lamps.
Cairo is waiting for 75 teapots.
Deliver 11 kayaks to the club in Bergen."""
SHOTS = (
    user("We need 6 wooden tables in Porto."),
    assistant('{"quantity": 6, "item": "wooden tables", "city": "Porto"}'),
    user("For the museum in Malmo: 120 blankets."),
    assistant('{"quantity": 120, "item": "blankets", "city": "Malmo"}'),
    user("Perth wants 9 wool hats."),
    assistant('{"quantity": 9, "item": "wool hats", "city": "Perth"}'),
)


async def main(lm: Runtime, text: str) -> list[Order]:
    prefix = lm.transcript(system("Turn each note into an order."), *SHOTS)
    notes = [line for line in (text or NOTES).splitlines() if line.strip()]
    async with lm.fork([prefix + user(note) for note in notes]) as branches:
        return [generation.value for generation in await branches.gen(Order, max_tokens=64, temperature=0.0)]


if __name__ == "__main__":
    with Runtime() as runtime:
        print(*asyncio.run(main(runtime, "")), sep="\n")
