#!/usr/bin/env python3
"""Train the small byte-level Llama model next to this script.

    python3 train.py TEXT --out DIR

TEXT is a plain-text file; a form feed (\\f) begins a new document.  DIR gets
config.json and model.safetensors, which transformers.LlamaForCausalLM reads.

A token is a byte.  Byte 0 stands between documents and is both the
begin-of-sequence and the end-of-sequence token.

Needs PyTorch and safetensors.  --steps 20 --batch 4 --block 128 is a quick
try that runs on a CPU.
"""

import argparse
import json
import math
import os
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 192,
    "initializer_range": 0.02,
    "intermediate_size": 512,
    "max_position_embeddings": 2048,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 256,
}

SEPARATOR = 0


# ---------------------------------------------------------------- the model
# Module names follow the Hugging Face layout, so that the state dict's keys,
# with "model." before them, are the names in the safetensors file.


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return (x * cos + turned * sin).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c["num_attention_heads"]
        self.kv_heads = c["num_key_value_heads"]
        self.head_dim = c["head_dim"]
        d = c["hidden_size"]
        self.q_proj = nn.Linear(d, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(d, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(d, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, d, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, h = c["hidden_size"], c["intermediate_size"]
        self.gate_proj = nn.Linear(d, h, bias=False)
        self.up_proj = nn.Linear(d, h, bias=False)
        self.down_proj = nn.Linear(h, d, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c, dropout):
        super().__init__()
        self.input_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = MLP(c)
        self.dropout = dropout

    def forward(self, x, cos, sin):
        y = self.self_attn(self.input_layernorm(x), cos, sin)
        x = x + F.dropout(y, self.dropout, self.training)
        y = self.mlp(self.post_attention_layernorm(x))
        return x + F.dropout(y, self.dropout, self.training)


class Llama(nn.Module):
    def __init__(self, c, dropout=0.0):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(
            Layer(c, dropout) for _ in range(c["num_hidden_layers"])
        )
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.dropout = dropout

        d = c["head_dim"]
        inverse = c["rope_theta"] ** (-torch.arange(0, d, 2).float() / d)
        angle = torch.outer(torch.arange(c["max_position_embeddings"]).float(), inverse)
        angle = torch.cat((angle, angle), dim=-1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

        std = c["initializer_range"]
        for name, p in self.named_parameters():
            if p.dim() == 2:
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                scale = (2 * c["num_hidden_layers"]) ** -0.5 if last else 1.0
                nn.init.normal_(p, std=std * scale)

    def forward(self, ids):
        t = ids.shape[1]
        cos, sin = self.cos[:t], self.sin[:t]
        x = F.dropout(self.embed_tokens(ids), self.dropout, self.training)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.embed_tokens.weight)


# ----------------------------------------------------------------- the text


def read_documents(path):
    with open(path, "rb") as f:
        parts = f.read().replace(b"\0", b"").split(b"\f")
    return [p.strip() + b"\n" for p in parts if p.strip()]


def stream(documents):
    """All documents in a row, byte 0 before each and after the last, and where
    each begins (at its byte 0)."""
    data, starts = bytearray(), []
    for d in documents:
        starts.append(len(data))
        data.append(SEPARATOR)
        data += d
    data.append(SEPARATOR)
    return torch.frombuffer(data, dtype=torch.uint8).clone(), torch.tensor(starts)


class Batches:
    """Random windows; a quarter of them begin where a document does."""

    def __init__(self, documents, batch, block, device, seed):
        self.data, starts = stream(documents)
        self.last = len(self.data) - block - 1
        if self.last < 0:
            raise SystemExit("the text is shorter than one window")
        self.starts = starts[starts <= self.last].to(device)
        self.data = self.data.to(device)
        self.steps = torch.arange(block + 1, device=device)
        self.batch = batch
        self.device = device
        self.rng = torch.Generator(device=device).manual_seed(seed)

    def draw(self):
        def pick(n, count):
            return torch.randint(
                n, (count,), device=self.device, generator=self.rng
            )

        first = self.batch // 4
        at = torch.cat(
            (
                self.starts[pick(len(self.starts), first)],
                pick(self.last + 1, self.batch - first),
            )
        )
        window = self.data[at[:, None] + self.steps].long()
        return window[:, :-1], window[:, 1:]


def autocast(device):
    return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")


@torch.no_grad()
def validate(model, documents, batch, block, device):
    """Mean loss in nats per byte over whole windows of the held-out text, side
    by side."""
    model.eval()
    data = stream(documents)[0].long()
    count = (len(data) - 1) // block
    x = data[: count * block].view(count, block)
    y = data[1 : count * block + 1].view(count, block)
    total = 0.0
    for i in range(0, count, batch):
        with autocast(device):
            logits = model(x[i : i + batch].to(device))
        total += F.cross_entropy(
            logits.float().flatten(0, 1),
            y[i : i + batch].to(device).flatten(),
            reduction="sum",
        ).item()
    model.train()
    return total / (count * block)


# ------------------------------------------------------------------ the rest


def save(state, out):
    os.makedirs(out, exist_ok=True)
    tensors = {
        "model." + k: v.to(torch.bfloat16).cpu().contiguous() for k, v in state.items()
    }
    save_file(
        tensors, os.path.join(out, "model.safetensors"), metadata={"format": "pt"}
    )
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(CONFIG, f, indent=2)
        f.write("\n")


@torch.no_grad()
def generate(model, prompt, count, temperature, seed, device):
    model.eval()
    rng = torch.Generator().manual_seed(seed)
    ids = [SEPARATOR] + list(prompt.encode())
    for _ in range(count):
        window = torch.tensor([ids[-CONFIG["max_position_embeddings"] :]], device=device)
        logits = model(window)[0, -1].float().cpu()
        if temperature == 0:
            token = int(logits.argmax())
        else:
            token = int(torch.multinomial((logits / temperature).softmax(0), 1, generator=rng))
        if token == SEPARATOR:
            break
        ids.append(token)
    return bytes(ids[1:]).decode("utf-8", "replace")


def main():
    p = argparse.ArgumentParser(description="train the small byte-level Llama model")
    p.add_argument("text", help="plain text; a form feed begins a new document")
    p.add_argument("--out", required=True, help="folder for the model's files")
    p.add_argument("--steps", type=int, default=5000)
    p.add_argument("--batch", type=int, default=32, help="windows a step")
    p.add_argument("--block", type=int, default=2048, help="bytes a window")
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--warmup", type=int, default=200)
    p.add_argument("--weight-decay", type=float, default=0.1)
    p.add_argument("--dropout", type=float, default=0.1)
    p.add_argument("--held-out", type=float, default=0.05, help="share of documents")
    p.add_argument("--eval-every", type=int, default=250)
    p.add_argument("--sample", type=int, default=300, help="bytes of each sample printed")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--compile", action="store_true", help="use torch.compile")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = p.parse_args()
    if a.block > CONFIG["max_position_embeddings"]:
        p.error("--block exceeds max_position_embeddings")

    torch.manual_seed(a.seed)
    torch.set_float32_matmul_precision("high")

    documents = read_documents(a.text)
    order = list(range(len(documents)))
    random.Random(0).shuffle(order)
    held = set(order[: max(1, round(a.held_out * len(documents)))])
    valid = [documents[i] for i in sorted(held)]
    train = [d for i, d in enumerate(documents) if i not in held]
    batches = Batches(train, a.batch, a.block, a.device, a.seed)
    size = sum(map(len, valid))
    print(f"{len(train)} documents, {sum(map(len, train))} bytes to train on; "
          f"{len(valid)} documents, {size} bytes held out")

    raw = Llama(CONFIG, a.dropout).to(a.device)
    print(f"{sum(q.numel() for q in raw.parameters())} parameters, device {a.device}")
    model = torch.compile(raw) if a.compile else raw
    matrices = [q for q in raw.parameters() if q.dim() == 2]
    vectors = [q for q in raw.parameters() if q.dim() != 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": a.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=a.lr,
        betas=(0.9, 0.95),
        fused=a.device == "cuda",
    )

    def rate(step):
        if step < a.warmup:
            return a.lr * (step + 1) / a.warmup
        done = (step - a.warmup) / max(1, a.steps - a.warmup)
        return a.lr * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))

    best, best_state, best_step = float("inf"), None, 0
    since = None
    for step in range(a.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        x, y = batches.draw()
        with autocast(a.device):
            logits = model(x)
        loss = F.cross_entropy(logits.float().flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

        done = step + 1
        if done == 10 or done == a.steps or done % a.eval_every == 0:
            shown = loss.item()  # waits for the device
            now = time.time()
            if since:
                pace = (now - since[1]) / (done - since[0]) * 1000
                timing = f"{pace:.1f} ms a step"
            else:
                timing = "-"
            if done > 10 or a.steps <= 10:
                v = validate(raw, valid, a.batch, a.block, a.device)
                if v < best:
                    best, best_step = v, done
                    best_state = {k: t.detach().clone() for k, t in raw.state_dict().items()}
                print(f"step {done:5d}  lr {rate(step):.2e}  train {shown:.4f}  "
                      f"held-out {v:.4f} nats/byte  {timing}", flush=True)
            since = (done, time.time())

    # What is saved is bfloat16, so that is also what is measured.
    raw.load_state_dict({k: t.to(torch.bfloat16).float() for k, t in best_state.items()})
    save(raw.state_dict(), a.out)
    final = validate(raw, valid, a.batch, a.block, a.device)
    print(f"saved step {best_step} to {a.out}: held-out loss {final:.4f} nats/byte, "
          f"{final / math.log(2):.4f} bits/byte")
    if not a.sample:
        return
    for prompt in ("In the beginning ", "And it came to pass", "Psalms 23\n\nThe LORD is "):
        for temperature in (0, 0.7):
            print(f"--- temperature {temperature}")
            print(generate(raw, prompt, a.sample, temperature, a.seed, a.device))


if __name__ == "__main__":
    main()
