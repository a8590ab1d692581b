"""A runtime whose answers are written in a script."""

import threading
from pathlib import Path
from typing import Literal, Self

from agentree.lm import Runtime
from agentree.lm.home import Home, Settings
from agentree.lm.session import Session
from agentree.runtime.model.tokenizer import Tokenizer
from agentree.testing.engine import ScriptedEngine
from agentree.testing.script import Script, Teller
from agentree.testing.tokens import CONTEXT, byte_config, byte_tokenizer


class ScriptedRuntime(Runtime):
    """Scripted outputs over a real tokenizer, radix tree and usage counters. No weights, no torch.

    An answer may be text as the model would write it, a value of the type that is asked for, a `ToolCall`,
    `final_answer(value)` for the end of a tool turn, an exception to raise, or a `Reply` that takes time. An
    answer that the request's constraint forbids fails the request with `ScriptError`.
    """

    def __init__(
        self,
        script: Script,
        *,
        model: str | Path | None = None,
        kv_tokens: int = 1 << 16,
        eviction: Literal["plan", "lru"] = "plan",
        jump_forward: bool = True,
        seed: int = 0,
    ) -> None:
        """Nothing is opened yet.

        Args:
            script: Answers in the order of the requests; or by task path ("answer[2]#2", "answer[2]") or node
                ("answer"), each one answer for all or a list of answers; or a function of the request.
            model: Whose tokenizer and chat template to use (a catalogue name or a folder). None: one token
                for each byte.
            kv_tokens: Size of the pool, in tokens.
            eviction: As in `Runtime`.
            jump_forward: As in `Runtime`.
            seed: As in `Runtime`.
        """
        super().__init__(
            "scripted" if model is None else model,
            kv_tokens=kv_tokens,
            eviction=eviction,
            jump_forward=jump_forward,
            seed=seed,
        )
        self._home = _Home(self._home.settings, Teller(script), files=model is not None, slots=kv_tokens)

    async def __aenter__(self) -> Self:
        """Open it, which takes no time worth a thread."""
        self._home.open()
        return self

    def check(self) -> None:
        """Raise on any broken invariant of slots and tree."""
        engine = self._home.last.engine()
        if isinstance(engine, ScriptedEngine):
            engine.check()


class _Home(Home):
    def __init__(self, settings: Settings, teller: Teller, *, files: bool, slots: int) -> None:
        super().__init__(settings)
        self._teller = teller
        self._files = files
        self._slots = slots

    def _load(self, abandoned: threading.Event) -> Session:
        tokenizer, template, context = self._read()
        settings = self.settings
        engine = ScriptedEngine(
            self._teller,
            tokenizer,
            bus=self.bus,
            slots=self._slots,
            eviction=settings.eviction,
            jump_forward=settings.jump_forward,
        )
        return Session(
            name=f"scripted {settings.model}",
            engine=engine,
            tokenizer=tokenizer,
            template=template,
            bus=self.bus,
            context=context,
            pool=self._slots,
            inboxes=self.inboxes,
        )

    def _read(self) -> tuple[Tokenizer, str | None, int]:
        if not self._files:
            return byte_tokenizer(), None, byte_config().context
        from agentree.runtime.model.config import read_config
        from agentree.runtime.model.folder import resolve
        from agentree.runtime.model.tokenizer import read_template, read_tokenizer

        folder = resolve(self.settings.model).path
        return read_tokenizer(folder, read_config(folder)), read_template(folder), CONTEXT
