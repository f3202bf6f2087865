#!/usr/bin/env python3
"""Reference outputs of small models of the transformers library, for the tests in this folder.

    python3 reference.py --out ../data/models            writes one file per model
    python3 reference.py --check ../data/models          computes everything anew and compares it with the files

Weights and tokens come from a formula (weights.h has the same one), so a file holds the configuration, the lengths of the
requests and some columns of what the model gives at every position, by transformers in fp32. Every weight is representable in
bf16: the same numbers are right for a bf16 model, whose allowed error follows from that of transformers' own bf16.

Some models have caches of 8 bits instead (caches.py). A value next to where the quantiser rounds the other way may become another
code by the order of fp32 sums alone, and changes what follows: the file tells by how much, as transformers' results change when
each k and v is off by up to 1e-6 of its head's root mean square. Of all kinds of caches and several tries the largest counts, for
it is chance which ones have such a value.

A file's lines:

    config NAME VALUE                 of the model
    fp32 LARGEST MEAN                 with caches of 8 bits: how far fp32 results may be apart by chance
    cache NAME                        the lines after it, up to the next one, are of the model with this cache
    bf16 LARGEST MEAN                 error of transformers in bf16 against its fp32, over the numbers of this file
    columns C ...                     that the rows have, of the logits or of the last hidden state
    request PROMPT GIVEN [SOURCE]     tokens of the prompt, tokens that are given one by one, tokens that an encoder gets
    row REQUEST POSITION VALUE ...    one per token that is fed in

Needs PyTorch and transformers; downloads nothing.
"""

import argparse
import os
import sys

import numpy as np
import torch
import transformers

import caches

COLUMNS = 8
CHECK_LIMIT = 5e-5  # for --check: another processor or version sums in another order
OFF, TRIES = 1e-6, 32  # with caches of 8 bits: of k and v, and how often

# ------------------------------------------------------------------------------------------------------------- the formula


def words(name, first, count):
    """splitmix64 of FNV-1a(name) + index, for `count` indices."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(first, first + count, dtype=np.uint64)
        z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def values(name, shape, centre, scale):
    """centre + scale * u, u a multiple of 1/64 in -1 .. 1."""
    u = (words(name, 0, int(np.prod(shape))) % np.uint64(129)).astype(np.float32) / 64 - 1
    return torch.from_numpy((np.float32(centre) + np.float32(scale) * u).reshape(shape))


def tokens(kind, request, count, vocab):
    return [int(w) for w in words(f"{kind}.{request}", 0, count) % np.uint64(vocab)]


def scale_of(fan_in):
    """The power of two that keeps a sum of `fan_in` products about as large as the factors."""
    scale = 1.0
    while scale * scale * fan_in > 4.0:
        scale /= 2
    return scale


def fill(model, centres):
    """Every parameter by its name. `centres`: {end of a name: (centre, scale)}, which override the usual rules."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            rule = next((r for end, r in centres.items() if name.endswith(end)), None)
            if rule is None and name.endswith("bias"):
                rule = (0.0, 0.25)
            elif rule is None and ("norm" in name.lower() or "ln_f" in name):
                rule = (1.0, 0.5)
            elif rule is None:
                rule = (0.0, scale_of(weight.shape[-1]))
            weight.copy_(values(name, tuple(weight.shape), *rule))


# -------------------------------------------------------------------------------------------------------------- the models

PLAIN = dict(pad_token_id=None, bos_token_id=None, eos_token_id=None, attn_implementation="eager")
CAUSAL_REQUESTS = ((37, 6), (5, 9), (70, 3), (1, 12), (16, 5), (23, 0))


class Gemma2:
    """Soft caps, windows in every other layer, head dim 256, two groups of pages."""

    requests = CAUSAL_REQUESTS
    config = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=256, query_pre_attn_scalar=64, sliding_window=24,
                  attn_logit_softcapping=4.0, final_logit_softcapping=8.0, rms_norm_eps=1e-6, rope_theta=10000.0)

    def make(self):
        c = dict(self.config)
        rope = dict(rope_type="default", rope_theta=c.pop("rope_theta"))
        model = transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**c, **PLAIN, rope_parameters=rope))
        fill(model, {"norm.weight": (0.0, 0.5), "embed_tokens.weight": (0.0, 0.25)})
        return model


class GptOss:
    """Sinks, windows in every other layer, YaRN. Every token uses both experts, so no choice depends on rounding."""

    requests = CAUSAL_REQUESTS
    config = dict(vocab_size=96, hidden_size=64, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
                  num_key_value_heads=1, head_dim=64, sliding_window=20, num_local_experts=2, num_experts_per_tok=2,
                  rms_norm_eps=1e-5, rope_theta=150000.0, yarn_factor=32.0, yarn_beta_fast=32.0, yarn_beta_slow=1.0,
                  original_max_position_embeddings=4096)

    def make(self):
        c = dict(self.config)
        rope = dict(rope_type="yarn", rope_theta=c.pop("rope_theta"), factor=c.pop("yarn_factor"),
                    beta_fast=c.pop("yarn_beta_fast"), beta_slow=c.pop("yarn_beta_slow"), truncate=False,
                    original_max_position_embeddings=c.pop("original_max_position_embeddings"))
        model = transformers.GptOssForCausalLM(transformers.GptOssConfig(
            **c, **PLAIN, rope_parameters=rope, max_position_embeddings=131072, experts_implementation="eager"))
        fill(model, {"sinks": (0.5, 2.0), "gate_up_proj": (0.0, scale_of(64)), "down_proj": (0.0, scale_of(64)),
                     "proj_bias": (0.0, 0.25)})  # experts' matrices are [in][out]
        return model


class Bloom:
    """ALiBi, with a number of heads that is not a power of two."""

    requests = CAUSAL_REQUESTS
    config = dict(vocab_size=96, hidden_size=96, n_layer=3, n_head=6, layer_norm_epsilon=1e-5)

    def make(self):
        model = transformers.BloomForCausalLM(transformers.BloomConfig(**self.config, **PLAIN))
        fill(model, {"word_embeddings.weight": (0.0, 0.25)})
        return model


class Bert:
    """An encoder: no cache, every token sees every other one. Gives the last hidden state."""

    requests = ((37, 0), (1, 0), (70, 0), (5, 0), (16, 0), (23, 0), (64, 0))
    config = dict(vocab_size=96, hidden_size=96, intermediate_size=128, num_hidden_layers=3, num_attention_heads=3,
                  max_position_embeddings=80, type_vocab_size=2, layer_norm_eps=1e-12)

    def make(self):
        model = transformers.BertModel(transformers.BertConfig(**self.config, **PLAIN), add_pooling_layer=False)
        fill(model, {})
        return model


class Bart:
    """An encoder without a cache, and a decoder that attends to its output."""

    requests = ((9, 6, 37), (1, 9, 5), (20, 3, 70), (1, 12, 1), (4, 5, 16), (33, 2, 23))
    config = dict(vocab_size=96, d_model=64, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=96,
                  decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=128, max_position_embeddings=80)

    def make(self):
        model = transformers.BartForConditionalGeneration(transformers.BartConfig(
            **self.config, **{**PLAIN, "pad_token_id": 0}, decoder_start_token_id=0, forced_eos_token_id=None))
        fill(model, {"shared.weight": (0.0, 0.25)})
        return model


class Llama:
    """Plain causal attention with grouped heads, over caches of 8 bits of each kind."""

    caches = tuple(caches.KINDS)
    columns = 4
    requests = ((37, 3), (66, 4), (1, 6), (9, 0))
    config = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-5, rope_theta=10000.0)
    kinds = transformers.LlamaConfig, transformers.LlamaForCausalLM

    def make(self):
        c = dict(self.config)
        rope = dict(rope_type="default", rope_theta=c.pop("rope_theta"))
        model = self.kinds[1](self.kinds[0](**c, **PLAIN, rope_parameters=rope))
        fill(model, {})
        return model


class Qwen3(Llama):
    """The same with norms of each head of q and k, an odd number of KV heads, and another head dim."""

    config = dict(vocab_size=96, hidden_size=96, intermediate_size=64, num_hidden_layers=2, num_attention_heads=6,
                  num_key_value_heads=3, head_dim=48, rms_norm_eps=1e-6, rope_theta=1000000.0)
    kinds = transformers.Qwen3Config, transformers.Qwen3ForCausalLM


MODELS = {"gemma2": Gemma2, "gpt_oss": GptOss, "bloom": Bloom, "bert": Bert, "bart": Bart, "llama": Llama, "qwen3": Qwen3}

# ------------------------------------------------------------------------------------------------------------- the answers


def half(model):
    """In bf16, except the frequencies of rotary embeddings, which a model loaded in bf16 keeps in fp32."""
    kept = {name: buffer.clone() for name, buffer in model.named_buffers() if "inv_freq" in name}
    model = model.to(torch.bfloat16)
    for name, buffer in kept.items():
        module, _, last = name.rpartition(".")
        setattr(model.get_submodule(module), last, buffer)
    return model


@torch.no_grad()
def answer(model, kind, request, lengths, vocab, past):
    """[position][vocab or hidden], computed from the whole sequence at once: nothing depends on a cache, unless `past` changes
    what it keeps."""
    ids = torch.tensor([tokens(kind, request, lengths[0] + lengths[1], vocab)])
    if len(lengths) > 2:
        source = torch.tensor([tokens(f"{kind}.source", request, lengths[2], vocab)])
        ones = torch.ones_like
        out = model(input_ids=source, attention_mask=ones(source), decoder_input_ids=ids, decoder_attention_mask=ones(ids))
    else:
        out = model(input_ids=ids, **({"past_key_values": past} if past else {}))
    result = out.logits if hasattr(out, "logits") else out.last_hidden_state
    return result[0].float().numpy()


class Answers:
    """What a model gives, in fp32 and in bf16. `cache`: the name of one of 8 bits, or None."""

    def __init__(self, kind):
        self.kind, self.maker = kind, MODELS[kind]()
        self.vocab = self.maker.config["vocab_size"]
        self.exact, self.half = self.maker.make().eval(), half(self.maker.make().eval())
        width = self.all(self.exact, None)[0].shape[1]
        self.columns = np.linspace(0, width - 1, getattr(self.maker, "columns", COLUMNS)).astype(int)

    def all(self, model, cache, off=0.0, seed=0):
        layers = self.maker.config.get("num_hidden_layers")
        made = [caches.cache(cache, layers, values, off, 10 * seed + r) if cache else None
                for r in range(len(self.maker.requests))]
        return [answer(model, self.kind, r, lengths, self.vocab, made[r]) for r, lengths in enumerate(self.maker.requests)]

    def rows(self, cache, off=0.0, seed=0):
        """In fp32, the columns of the file."""
        if cache:
            self.exact.set_attn_implementation(caches.attention(cache))
        return [found[:, self.columns] for found in self.all(self.exact, cache, off, seed)]

    def bf16(self, cache):
        return error([found[:, self.columns] for found in self.all(self.half, cache)], self.rows(cache))

    def by_chance(self):
        """How far results in fp32 may be apart with caches of 8 bits."""
        tries = [(cache, seed) for cache in self.maker.caches for seed in range(1, TRIES + 1)]
        return np.max([error(self.rows(cache, OFF, seed), self.rows(cache)) for cache, seed in tries], axis=0)


def error(found, expected):
    """The largest and the mean."""
    apart = np.concatenate([np.abs(a - b).ravel() for a, b in zip(found, expected, strict=True)])
    return apart.max(), apart.mean(dtype=np.float64)


def bf16_line(answers, cache):
    return "bf16 {:.4g} {:.4g}".format(*answers.bf16(cache))


def row_lines(answers, cache):
    for request, found in enumerate(answers.rows(cache)):
        for position, row in enumerate(found):
            yield f"row {request} {position} " + " ".join(f"{value:.7g}" for value in row)


def lines(kind):
    answers = Answers(kind)
    maker = answers.maker
    plain = not hasattr(maker, "caches")
    yield f"# tests/models/reference.py, transformers {transformers.__version__}, torch {torch.__version__}"
    for name, value in maker.config.items():
        yield f"config {name} {value}"
    yield bf16_line(answers, None) if plain else "fp32 {:.4g} {:.4g}".format(*answers.by_chance())
    yield "columns " + " ".join(map(str, answers.columns))
    for lengths in maker.requests:
        yield "request " + " ".join(map(str, lengths))
    if plain:
        yield from row_lines(answers, None)
        return
    for cache in maker.caches:
        yield f"cache {cache}"
        yield bf16_line(answers, cache)
        yield from row_lines(answers, cache)


def differences(path, kind):
    """What differs in a kept file."""
    with open(path) as file:
        kept = [line.split() for line in file if not line.startswith("#")]
    new = [line.split() for line in lines(kind) if not line.startswith("#")]
    if len(kept) != len(new):
        return [f"has {len(kept)} lines, expected {len(new)}"]
    found = []
    limit = CHECK_LIMIT
    for old, now in zip(kept, new, strict=True):
        if old[0] == "row" == now[0]:
            same = old[:3] == now[:3] and np.allclose(np.float64(old[3:]), np.float64(now[3:]), rtol=0, atol=limit)
        elif old[0] == now[0] and old[0] in ("bf16", "fp32"):
            same = np.allclose(np.float64(old[1:]), np.float64(now[1:]), rtol=0.2 if old[0] == "bf16" else 0.5, atol=0)
            limit += float(old[1]) if old[0] == "fp32" else 0
        else:
            same = old == now
        if not same:
            found.append(f"has {' '.join(old)}, expected {' '.join(now)}")
    return found


def main():
    p = argparse.ArgumentParser(description="what small models of transformers give")
    p.add_argument("--out", help="folder of the files to write")
    p.add_argument("--check", help="folder of the files to compare with")
    p.add_argument("--models", default=",".join(MODELS), help="which, separated by commas")
    args = p.parse_args()
    if (args.out is None) == (args.check is None):
        p.error("expected one of --out and --check")
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    wrong = 0
    for kind in args.models.split(","):
        if args.out:
            with open(os.path.join(args.out, kind + ".txt"), "w") as file:
                file.writelines(line + "\n" for line in lines(kind))
            continue
        found = differences(os.path.join(args.check, kind + ".txt"), kind)
        print(kind, "FAILED" if found else "is the same", *found[:5], sep="\n  " if found else " ")
        wrong += bool(found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
