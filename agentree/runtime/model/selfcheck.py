"""Do the compiled kernels compute what torch computes? Asked once, before anything is made of them."""

import torch
from torch.nn import functional

from agentree.runtime.model.batch import Batch, Row
from agentree.runtime.model.compiled import CompiledStack
from agentree.runtime.model.config import ModelConfig, Rope
from agentree.runtime.model.decoder import Stack
from agentree.runtime.model.kv import KVPool
from agentree.runtime.model.linear import Dense, Storage
from agentree.runtime.model.packed import Packed, alternate
from agentree.runtime.model.rope import RotaryTable
from agentree.runtime.model.stack import Layer, Parts, TorchStack
from agentree.runtime.native.library import Library

ROUNDING: dict[Storage, float] = {"fp32": 1e-5, "fp16": 1e-5, "bf16": 0.02, "int8": 0.02}
"""Error that a product may have, as a share of its size, for weights that float16 and bfloat16 hold."""


def works(kernels: Library) -> bool:
    """Whether products of all kinds, and a small random decoder, give what torch gives."""
    return _multiplies(kernels) and _decodes(kernels)


def _multiplies(kernels: Library) -> bool:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(48, 70, generator=generator).bfloat16().float()
    bias = torch.randn(48, generator=generator)
    for rows in (1, 15):
        x = torch.randn(rows, 70, generator=generator)
        expected = functional.linear(x, weight, bias)
        for storage, most in ROUNDING.items():
            error = Packed(weight, bias, storage, kernels)(x) - expected
            # Written so that NaN fails.
            if not error.norm() <= most * expected.norm():
                return False
    return True


def _decodes(kernels: Library) -> bool:
    """A trunk, then two branches of it at once."""
    config = ModelConfig(
        architecture="LlamaForCausalLM",
        vocab_size=70,
        hidden_size=40,
        intermediate_size=48,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=32,
        context=512,
        norm_eps=1e-5,
        rope=Rope(),
        tied=False,
        qkv_bias=True,
        output_bias=False,
        mlp_bias=False,
        qk_norm=True,
        bos_id=None,
        end_ids=frozenset(),
    )
    plain, packed = _small(config, kernels)
    return all(
        torch.allclose(a, b, rtol=1e-3, atol=1e-3)
        for a, b in zip(_answers(plain, config), _answers(packed, config), strict=True)
    )


def _answers(stack: Stack, config: ModelConfig) -> list[torch.Tensor]:
    pool = KVPool(config.layers, 400, config.kv_heads, config.head_dim)
    trunk = torch.randperm(400, generator=torch.Generator().manual_seed(1))
    found: list[torch.Tensor] = []
    for start, rows in ((0, [(0, 300)]), (300, [(0, 1), (1, 20)])):
        parts: list[Row] = []
        slots: list[torch.Tensor] = []
        places: list[torch.Tensor] = []
        at = 0
        for which, count in rows:
            new = trunk[start + 40 * which : start + 40 * which + count]
            parts.append(Row(at, at + count, torch.cat((trunk[:start], new))))
            slots.append(new)
            places.append(torch.arange(start, start + count))
            at += count
        positions = torch.cat(places)
        batch = Batch(positions * 7 % 70, positions, torch.cat(slots), parts, torch.arange(at))
        with torch.inference_mode():
            found.append(stack.forward(batch, pool, 2))
    return found


def _small(config: ModelConfig, kernels: Library) -> tuple[TorchStack, CompiledStack]:
    generator = torch.Generator().manual_seed(0)
    queries, width = config.heads * config.head_dim, (config.heads + 2 * config.kv_heads) * config.head_dim
    hidden, inner = config.hidden_size, config.intermediate_size

    def random(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) / shape[-1] ** 0.5).half().float()

    plain: list[Layer[Dense]] = []
    packed: list[Layer[Packed]] = []
    for _ in range(config.layers):
        norms = [
            random(hidden) + 1,
            random(config.heads + config.kv_heads, config.head_dim) + 1,
            random(hidden) + 1,
        ]
        bias = random(width)
        matrices = [
            random(width, hidden),
            random(hidden, queries),
            random(2 * inner, hidden),
            random(hidden, inner),
        ]
        dense = [Dense(matrix, bias if i == 0 else None) for i, matrix in enumerate(matrices)]
        matrices[2] = alternate(matrices[2])
        panels = [
            Packed(matrix, bias if i == 0 else None, "fp32" if i % 2 else "fp16", kernels)
            for i, matrix in enumerate(matrices)
        ]
        plain.append(Layer(norms[0], dense[0], norms[1], dense[1], norms[2], dense[2], dense[3]))
        packed.append(Layer(norms[0], panels[0], norms[1], panels[1], norms[2], panels[2], panels[3]))
    table, norm, head = random(70, hidden), random(hidden) + 1, random(70, hidden)
    rotary = RotaryTable(config, 512, torch.device("cpu"))
    return (
        TorchStack(Parts(config, table, plain, norm, Dense(head, None), rotary, torch.float32)),
        CompiledStack(
            Parts(config, table, packed, norm, Packed(head, None, "fp16", kernels), rotary, torch.float32),
            kernels,
        ),
    )
