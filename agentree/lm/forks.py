"""Branches of a fork: generated on in one wave, released together."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from agentree.errors import InvalidArgument
from agentree.lm import seeds as seeding
from agentree.lm.arguments import items, shown
from agentree.lm.generate import Options, generate
from agentree.lm.generation import Generation
from agentree.lm.holding import ForkScope
from agentree.lm.seeds import Seeds
from agentree.lm.session import Session
from agentree.lm.target import target_of
from agentree.lm.turns import Conversation
from agentree.runtime.constraint import Choice, Regex

if TYPE_CHECKING:
    from agentree.lm.transcript import Transcript

T = TypeVar("T")
U = TypeVar("U")


class Forks(Sequence["Transcript"]):
    """Branches of one fork; leaving the scope releases them. Results come in fork order."""

    def __init__(
        self, members: Sequence["Transcript"], session: Session, seeds: Seeds, scope: ForkScope
    ) -> None:
        self._members = tuple(members)
        self._scope = scope
        self._session = session
        self._seeds = seeds
        self._over = False

    def __len__(self) -> int:
        """How many branches."""
        return len(self._members)

    @overload
    def __getitem__(self, index: int, /) -> "Transcript": ...
    @overload
    def __getitem__(self, index: slice, /) -> Sequence["Transcript"]: ...
    def __getitem__(self, index: int | slice, /) -> "Transcript | Sequence[Transcript]":
        """A branch as a transcript of its own, or several."""
        return self._members[index]

    def __repr__(self) -> str:
        """How many branches, and whether their scope is over."""
        return f"<Forks: {len(self)} branches{', over' if self._over else ''}>"

    @overload
    async def gen(
        self,
        out: type[T],
        /,
        *,
        max_tokens: int = 256,
        temperature: float = 1.0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        think: int = 0,
    ) -> list[Generation[T]]: ...
    @overload
    async def gen(
        self,
        a: type[T],
        b: type[U],
        /,
        *,
        max_tokens: int = 256,
        temperature: float = 1.0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        think: int = 0,
    ) -> list[Generation[T | U]]: ...
    @overload
    async def gen(
        self,
        out: Regex | Choice,
        /,
        *,
        max_tokens: int = 256,
        temperature: float = 1.0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        think: int = 0,
    ) -> list[Generation[str]]: ...
    @overload
    async def gen(
        self,
        out: Any,
        /,
        *,
        max_tokens: int = 256,
        temperature: float = 1.0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        think: int = 0,
    ) -> list[Generation[Any]]: ...
    async def gen(
        self,
        *out: Any,
        max_tokens: int = 256,
        temperature: float = 1.0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        think: int = 0,
    ) -> list[Generation[Any]]:
        """One generation on every branch, all in one wave; arguments as in `Transcript.gen`.

        Each branch draws with a seed of its own, derived from `seed` and its index: given to the branch's
        own `gen`, the seed recorded in its result gives the same again. If one fails, the others are aborted.
        """
        self._refuse_over("gen")
        options = Options.of(max_tokens, temperature, top_p, stop, seed, think)
        return await self._wave([out] * len(self), options)

    async def _gen_each(
        self, outs: Sequence[Any], *, max_tokens: int, temperature: float
    ) -> list[Generation[Any]]:
        """One generation on every branch, all in one wave, each with an output of its own."""
        self._refuse_over("gen")
        return await self._wave([(out,) for out in outs], Options.of(max_tokens, temperature))

    async def _wave(self, outs: Sequence[tuple[Any, ...]], options: Options) -> list[Generation[Any]]:
        targets = [await target_of(self._session, out) for out in outs]
        for target in targets:
            options.check(target)
        base = self._seeds.draw() if options.seed is None else options.seed
        drawn = [seeding.derive(base, "branch", i) for i in range(len(self))]
        return await generate(self._session, self._members, targets, options, drawn)

    def keep(self, survivors: Iterable["Generation[Any] | Transcript"]) -> list["Transcript"]:
        """Survivors are held by the enclosing scope from now on.

        Raises InvalidArgument for a transcript that does not continue a branch of this fork.
        """
        self._refuse_over("keep")
        kept = transcripts("keep: survivors", survivors, "kids.keep([winner])")
        branches = [self._scope.branch_of(transcript) for transcript in kept]
        for transcript, branch in zip(kept, branches, strict=True):
            if branch is None:
                raise InvalidArgument(f"keep: {transcript!r} does not continue a branch of this fork")
        return [
            replace(transcript, _holder=self._scope.keep(branch, transcript))
            for transcript, branch in zip(kept, branches, strict=True)
            if branch is not None
        ]

    def _refuse_over(self, what: str) -> None:
        if self._over:
            raise InvalidArgument(
                f"{what}: the scope of this fork is over; call it inside the `async with` block, or go on "
                "from a transcript that was kept"
            )


def transcripts(name: str, given: object, write: str) -> list["Transcript"]:
    """The transcripts of a list of transcripts or generations. Raises InvalidArgument for anything else."""
    found: list[Transcript] = []
    for i, one in enumerate(items(name, given, f"write {write}")):
        transcript = cast("Generation[Any]", one).transcript if isinstance(one, Generation) else one
        if not isinstance(transcript, Conversation):
            raise InvalidArgument(f"{name}[{i}]={shown(cast('object', one))} is no transcript: write {write}")
        found.append(cast("Transcript", transcript))
    return found


@asynccontextmanager
async def branches(parents: Sequence["Transcript"], session: Session, seeds: Seeds) -> AsyncGenerator[Forks]:
    """The scope of one fork: a branch for each entry of `parents`, named after its place.

    Left by an exception, it ends once the engine has taken back what the branches held.
    """
    scope = ForkScope(session, parents)
    members = [
        replace(parent, _holder=holder, _scope=replace(parent._scope, path=f"{parent._scope.path}[{i}]"))
        for i, (parent, holder) in enumerate(zip(parents, scope.holders, strict=True))
    ]
    forks, cut_off = Forks(members, session, seeds, scope), False
    try:
        yield forks
    except BaseException as e:
        cut_off = not isinstance(e, GeneratorExit)  # after that one nothing can be awaited
        raise
    finally:
        forks._over = True
        scope.end()
        if cut_off:
            await session.settled()
