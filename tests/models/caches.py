"""Caches of 8 bits for the models of reference.py: what transformers gives when its cache holds only values that a code and a
factor can express, as include/cgr/attention.h documents it.

The append divides by the factor in fp32, rounds to nearest, ties to even, and saturates. Factors of a tensor, of KV heads and of
V's channels come from a formula (quantised_caches_test.cc has the same one); those of K's tokens are the largest magnitude of the
head's values divided by 127. Some heads have such factors that values saturate, others such that fp8 becomes subnormal.
"""

import math

import torch
import transformers
from transformers.cache_utils import Cache, DynamicLayer

# K's dtype and factors, and V's; None: as the model has it.
KINDS = {
    "e4m3": ("e4m3", "tensor", "e4m3", "tensor"),
    "e4m3_heads": ("e4m3", "heads", "e4m3", "heads"),
    "e5m2": ("e5m2", "tensor", "e5m2", "tensor"),
    "e5m2_heads": ("e5m2", "heads", "e5m2", "heads"),
    "i8_tokens": ("i8", "tokens", "i8", "channels"),
    "i8_static": ("i8", "heads", "i8", "heads"),
    "i8_k": ("i8", "tokens", None, None),
    "e4m3_i8": ("e4m3", "heads", "i8", "channels"),
}
MOST = {"e4m3": 448.0, "e5m2": 57344.0, "i8": 127.0}
EXPONENTS = {"e4m3": (-7, 0), "e5m2": (-14, 11), "i8": (-4, -6)}  # of the factors of even and odd KV heads


def factors(name, dtype, of, x, values):
    """Of x [1][heads][tokens][dim]; `values`: reference.py's formula."""
    heads, dim = x.shape[1], x.shape[3]
    if of == "tokens":
        return x.abs().amax(-1, keepdim=True) / MOST["i8"]
    shape = {"tensor": (1, 1, 1), "heads": (heads, 1, 1), "channels": (heads, 1, dim)}[of]
    exponents = [2.0 ** EXPONENTS[dtype][head % 2] for head in range(shape[0])]
    return values(name, shape, 1.0, 0.5) * torch.tensor(exponents).reshape(-1, 1, 1)


def through_codes(x, dtype, factor):
    """What is left of x after the append and back."""
    scaled = (x / factor).clamp(-MOST[dtype], MOST[dtype])
    if dtype == "i8":
        return scaled.round() * factor
    return scaled.to(torch.float8_e4m3fn if dtype == "e4m3" else torch.float8_e5m2).float() * factor


class Layer(DynamicLayer):
    def __init__(self, kind, layer, values, off, seed):
        super().__init__()
        self.kind, self.layer, self.values, self.off = kind, layer, values, off
        self.chance = torch.Generator().manual_seed(seed * 1000 + layer)

    def shifted(self, x):
        """x with errors up to `off` times the root mean square of each head's values."""
        size = x.pow(2).mean(-1, keepdim=True).sqrt()
        return x + self.off * size * (2 * torch.rand(x.shape, generator=self.chance) - 1)

    def kept(self, which, x, dtype, of):
        if dtype is None:
            return x
        wide = self.shifted(x.float()) if self.off else x.float()
        factor = factors(f"{self.kind}.{self.layer}.{which}", dtype, of, wide, self.values)
        return through_codes(wide, dtype, factor).to(x.dtype)

    def update(self, k, v, *args, **kwargs):
        of_k, of_v = KINDS[self.kind][:2], KINDS[self.kind][2:]
        return super().update(self.kept("k", k, *of_k), self.kept("v", v, *of_v), *args, **kwargs)


def cache(kind, layers, values, off=0.0, seed=0):
    return Cache(layers=[Layer(kind, layer, values, off, seed) for layer in range(layers)])


def attend_with_fp16_weights(module, q, k, v, mask, scaling, **_):
    """Causal attention whose softmax weights, relative to a row's largest, are rounded to fp16 before they meet V: what the
    header documents for V of 8 bits. Their sum is not rounded. All else is as in transformers' own."""
    k, v = (x.repeat_interleave(module.num_key_value_groups, dim=1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * scaling
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    scores = scores.masked_fill(hidden, -math.inf)
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    out = weights.half().to(v.dtype) @ v / weights.sum(-1, keepdim=True)
    return out.transpose(1, 2).contiguous(), None


transformers.AttentionInterface.register("fp16_weights", attend_with_fp16_weights)


def attention(kind):
    """What set_attn_implementation takes for a model in fp32."""
    return "fp16_weights" if KINDS[kind][2] else "eager"
