"""Llama and Qwen3 in plain torch. Attention is a function that the engine gives: attend(layer, q, k, v) returns out."""

import glob
import json
import math
import os
from dataclasses import dataclass

import torch
from torch.nn import Linear
from torch.nn.functional import silu


@dataclass
class Shape:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    theta: float = 10000.0
    epsilon: float = 1e-5
    qk_norm: bool = False  # Qwen3: q and k of each head are normalised
    tied: bool = False  # the head's weights are the embedding's
    stretch: tuple = ()  # Llama 3.1 and later: factor, low and high frequency factor, original length


SHAPES = {
    "tiny": Shape(128, 2, 4, 2, 32, 256, 512),
    "tiny-qwen3": Shape(128, 2, 4, 2, 32, 256, 512, qk_norm=True),
    "qwen3-0.6b": Shape(1024, 28, 16, 8, 128, 3072, 151936, 1e6, 1e-6, qk_norm=True, tied=True),
    "llama-1b": Shape(2048, 16, 32, 8, 64, 8192, 128256, 5e5, tied=True, stretch=(32.0, 1.0, 4.0, 8192)),
    "llama-8b": Shape(4096, 32, 32, 8, 128, 14336, 128256, 5e5),
}


class Layer(torch.nn.Module):
    def __init__(self, shape, index):
        super().__init__()
        self.shape, self.index = shape, index
        heads = shape.heads + 2 * shape.kv_heads
        self.qkv = Linear(shape.hidden, heads * shape.head_dim, bias=False)
        self.out = Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)
        self.gate_up = Linear(shape.hidden, 2 * shape.intermediate, bias=False)
        self.down = Linear(shape.intermediate, shape.hidden, bias=False)
        self.before_attention = torch.nn.RMSNorm(shape.hidden, shape.epsilon)
        self.before_mlp = torch.nn.RMSNorm(shape.hidden, shape.epsilon)
        if shape.qk_norm:
            self.q_norm, self.k_norm = (torch.nn.RMSNorm(shape.head_dim, shape.epsilon) for _ in range(2))

    def forward(self, x, cos, sin, attend):
        s = self.shape
        qkv = self.qkv(self.before_attention(x)).view(-1, s.heads + 2 * s.kv_heads, s.head_dim)
        qk, v = qkv.split((s.heads + s.kv_heads, s.kv_heads), 1)
        if s.qk_norm:
            qk = torch.cat((self.q_norm(qk[:, : s.heads]), self.k_norm(qk[:, s.heads :])), 1)
        q, k = rotate(qk, cos, sin).split((s.heads, s.kv_heads), 1)
        x = x + self.out(attend(self.index, q, k, v).flatten(1))
        gate, up = self.gate_up(self.before_mlp(x)).chunk(2, -1)
        return x + self.down(silu(gate) * up)


def rotary_frequencies(shape):
    frequencies = shape.theta ** (torch.arange(0, shape.head_dim, 2, device="cpu") / -shape.head_dim)
    if not shape.stretch:
        return frequencies
    factor, low, high, length = shape.stretch
    kept = ((length * frequencies / (2 * math.pi) - low) / (high - low)).clamp(0, 1)  # fast ones are kept, slow ones divided
    return frequencies * (kept + (1 - kept) / factor)


def rotate(x, cos, sin):
    """Of halves (a, b) of a head: (a cos - b sin, b cos + a sin). The first half of `sin` is negative."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


class Model(torch.nn.Module):
    def __init__(self, shape, max_len):
        super().__init__()
        self.shape = shape
        self.embed = torch.nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = torch.nn.ModuleList(Layer(shape, i) for i in range(shape.layers))
        self.norm = torch.nn.RMSNorm(shape.hidden, shape.epsilon)
        self.head = Linear(shape.hidden, shape.vocabulary, bias=False)
        if shape.tied:
            self.head.weight = self.embed.weight
        frequencies = rotary_frequencies(shape)
        angles = torch.arange(max_len, device="cpu")[:, None, None] * frequencies
        self.register_buffer("cos", torch.cat((angles.cos(), angles.cos()), -1), persistent=False)  # [max_len, 1, head_dim]
        self.register_buffer("sin", torch.cat((-angles.sin(), angles.sin()), -1), persistent=False)

    def forward(self, ids, positions, last, attend):
        """The next tokens after those at `last`. ids and positions are [tokens], last is [requests]."""
        return self.logits(ids, positions, last, attend).argmax(-1)

    def logits(self, ids, positions, last, attend):
        x = self.embed(ids)
        cos, sin = (table.index_select(0, positions) for table in (self.cos, self.sin))
        for layer in self.layers:
            x = layer(x, cos, sin, attend)
        return self.head(self.norm(x.index_select(0, last)))


def make_model(name, max_len, device, dtype, seed=1):
    """Of a shape with random weights, or of a folder as Hugging Face stores it."""
    folder = name if os.path.isdir(name) else None
    if folder is None and name not in SHAPES:
        raise SystemExit(f"no model {name!r}: expected a folder, or one of {', '.join(SHAPES)}")
    shape = read_shape(folder) if folder else SHAPES[name]
    torch.manual_seed(seed)
    with torch.device(device):
        model = Model(shape, max_len).to(device, dtype).eval()
    if folder:
        model.load_state_dict(read_weights(folder, shape), strict=not shape.tied)
    else:
        scale_weights(model)
    return model.requires_grad_(False)


@torch.no_grad()
def scale_weights(model):
    """Random ones so large that tokens differ from each other."""
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            alone = name.startswith("embed") and not model.shape.tied
            weight.normal_(0, 1 if alone else weight.shape[1] ** -0.5)


def read_shape(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        c = json.load(file)
    rope = c.get("rope_parameters") or c.get("rope_scaling") or {}
    kind = rope.get("rope_type", "default")
    if c["model_type"] not in ("llama", "qwen3") or kind not in ("default", "llama3") or c.get("attention_bias"):
        raise SystemExit(f"{folder}: expected llama or qwen3 with default or llama3 rotary positions and without biases")
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    return Shape(
        c["hidden_size"],
        c["num_hidden_layers"],
        c["num_attention_heads"],
        c["num_key_value_heads"],
        c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"],
        c["intermediate_size"],
        c["vocab_size"],
        rope.get("rope_theta") or c.get("rope_theta", 10000.0),
        c["rms_norm_eps"],
        c["model_type"] == "qwen3",
        c.get("tie_word_embeddings", False),
        tuple(rope[name] for name in names) if kind == "llama3" else (),
    )


def read_weights(folder, shape):
    from safetensors.torch import load_file

    theirs = {}
    for path in glob.glob(os.path.join(folder, "*.safetensors")):
        theirs.update(load_file(path))
    ours = {"embed.weight": theirs["model.embed_tokens.weight"], "norm.weight": theirs["model.norm.weight"]}
    if not shape.tied:
        ours["head.weight"] = theirs["lm_head.weight"]
    for i in range(shape.layers):
        for name, parts in PARTS.items():
            if "_norm" not in name or shape.qk_norm:
                ours[f"layers.{i}.{name}.weight"] = torch.cat([theirs[f"model.layers.{i}.{part}.weight"] for part in parts])
    return ours


PARTS = {
    "qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "out": ["self_attn.o_proj"],
    "gate_up": ["mlp.gate_proj", "mlp.up_proj"],
    "down": ["mlp.down_proj"],
    "before_attention": ["input_layernorm"],
    "before_mlp": ["post_attention_layernorm"],
    "q_norm": ["self_attn.q_norm"],
    "k_norm": ["self_attn.k_norm"],
}
