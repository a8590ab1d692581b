"""What one runtime is made of, and how it is opened and closed."""

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from agentree.errors import AgentreeError, InvalidArgument, RuntimeClosed
from agentree.events import Bus, ModelLoading, ModelReady
from agentree.lm.arguments import finite, shown, whole
from agentree.lm.feed import Feed
from agentree.lm.inbox import Inboxes
from agentree.lm.monitor import open_monitor
from agentree.lm.session import Session
from agentree.runtime.model.progress import STAGES

if TYPE_CHECKING:
    from agentree.runtime.model.progress import Step

HOW_TO_OPEN = (
    "write `async with Runtime(...) as lm:` (in a script without a loop: `with Runtime(...) as lm:`)"
)


@dataclass(frozen=True)
class Settings:
    """How a runtime is opened; the fields are those of `Runtime`."""

    model: str | Path
    device: Literal["auto", "cpu", "cuda"]
    kv_tokens: int | None
    gpu_memory_fraction: float
    max_batch_tokens: int | None
    weights: Literal["auto", "fp32", "fp16", "bf16", "int8"]
    eviction: Literal["plan", "lru"]
    jump_forward: bool
    speculate: bool

    def __post_init__(self) -> None:
        """Refuse what can be refused without loading anything."""
        for name in ("kv_tokens", "max_batch_tokens"):
            if getattr(self, name) is not None:
                hint = "a number of tokens, at least 1; leave it out for the default"
                object.__setattr__(self, name, whole(name, getattr(self, name), hint, least=1))
        share = "it must be above 0 and at most 1"
        fraction = finite("gpu_memory_fraction", self.gpu_memory_fraction, share)
        if not 0.0 < fraction <= 1.0:
            raise InvalidArgument(f"gpu_memory_fraction={fraction} is out of range: {share}")
        if self.eviction not in ("plan", "lru"):
            raise InvalidArgument(f"eviction={shown(self.eviction)} must be 'plan' or 'lru'")
        for name in ("jump_forward", "speculate"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgument(f"{name}={shown(getattr(self, name))} must be True or False")
        if not isinstance(cast("object", self.model), str | Path) or not str(self.model):
            raise InvalidArgument(
                f"model={shown(self.model)} names no model: give a catalogue name, a folder, a .gguf file "
                "or a hub id"
            )


class Home:
    """The state that a runtime and its scoped copies share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.bus = Bus()
        self.inboxes = Inboxes()
        self._feeds: set[Feed] = set()
        self._lock = threading.Lock()
        self._state: Literal["new", "opening", "open", "closed"] = "new"
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        """The open session. Raises RuntimeClosed, saying what to write."""
        with self._lock:
            if self._session is None or self._state != "open":
                when = "is closed" if self._state == "closed" else "is not open yet"
                raise RuntimeClosed(f"the runtime of {self.settings.model!r} {when}: {HOW_TO_OPEN}")
            return self._session

    @property
    def last(self) -> Session:
        """The open session, or the one that was open last."""
        with self._lock:
            if self._state == "closed" and self._session is not None:
                return self._session
        return self.session

    def open(self, abandoned: threading.Event | None = None) -> None:
        """Load the model and start the engine; blocks. Gives up, closed, once `abandoned` is set."""
        with self._lock:
            if self._state in ("opening", "open"):
                raise AgentreeError(f"the runtime of {self.settings.model!r} is open already")
            self._state = "opening"
        abandoned = abandoned or threading.Event()
        try:
            session = self._load(abandoned)
        except BaseException:
            with self._lock:
                if not abandoned.is_set():
                    self._state = "closed"
            raise
        with self._lock:
            # Whoever gave up has closed this runtime, and may be opening it again by now.
            given_up = abandoned.is_set()
            if not given_up:
                self._session = session
                self._state = "open"
        if given_up:
            session.close()

    def close(self) -> None:
        """Close the engine and end every feed; blocks until the engine's thread has ended."""
        with self._lock:
            opened = self._state == "open"
            self._state = "closed"
        if opened and self._session is not None:
            self._session.close()
        for feed in tuple(self._feeds):
            feed.finish()

    def feed(self, run: str | None = None, *, outlives: bool = False) -> Feed:
        """A new reader of events, of one run or of all, on the running event loop.

        It ends when the runtime closes, but for one that `outlives` it.
        """
        feed = Feed(self.bus, self.inboxes.current(), run)
        if not outlives:
            self._feeds.add(feed)
        return feed

    def end_feed(self, feed: Feed) -> None:
        """Forget a reader."""
        self._feeds.discard(feed)
        feed.close()

    def _load(self, abandoned: threading.Event) -> Session:
        from agentree.runtime.engine import Engine
        from agentree.runtime.model.load import load_model

        settings = self.settings
        began = time.monotonic()

        def report(step: "Step") -> None:
            if abandoned.is_set():
                raise RuntimeClosed(f"loading {settings.model!r} was cancelled")
            self.bus.emit(
                ModelLoading(
                    model=step.name,
                    stage=STAGES[step.stage],
                    done=step.done,
                    total=step.total or 0,
                    unit="bytes" if step.unit == "bytes" else "tensors",
                )
            )

        model = load_model(
            settings.model,
            device=settings.device,
            weights=settings.weights,
            kv_tokens=settings.kv_tokens,
            gpu_memory_fraction=settings.gpu_memory_fraction,
            progress=report,
        )
        limits = {} if settings.max_batch_tokens is None else {"max_batch_tokens": settings.max_batch_tokens}
        engine = Engine(
            model,
            bus=self.bus,
            eviction=settings.eviction,
            jump_forward=settings.jump_forward,
            speculate=settings.speculate,
            **limits,
        )
        try:
            session = Session(
                name=model.name,
                engine=engine,
                tokenizer=model.tokenizer,
                template=model.template,
                bus=self.bus,
                context=model.config.context,
                pool=model.kv.slots,
                inboxes=self.inboxes,
            )
        except BaseException:
            engine.close()
            raise
        about = {"model": model.name, "device": model.device, "weights": model.weights}
        session.monitor = open_monitor(engine, about)
        self.bus.emit(
            ModelReady(
                model=model.name,
                device=model.device,
                weights=model.weights,
                kernels=model.kernels,
                pool=model.kv.slots,
                seconds=time.monotonic() - began,
            )
        )
        return session
