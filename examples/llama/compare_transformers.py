#!/usr/bin/env python3
"""Compare this engine with the transformers library on random-weight Llamas.

    python3 compare_transformers.py --binary PATH/llama [--device host|cuda:0] [--out RESULT.json]

Makes a Llama per shape with random weights, lets transformers generate 64 greedy
tokens for a few prompts in fp32, and runs the `llama` program on the same folder.

host    fp32: the same tokens, all of them.
cuda    bf16: the program is fed the fp32 tokens one by one, and its logits at each
        of them are compared with those of fp32: their largest error is at most twice
        that of transformers in bf16, and the first token is the same wherever fp32's
        margin between its first two exceeds that error.

Needs PyTorch and transformers. Exits 1 if a shape fails.
"""

import argparse
import datetime
import json
import os
import platform
import struct
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS = 64
PROMPT_LENGTHS = (5, 33, 70)

COMMON = dict(
    hidden_act="silu",
    max_position_embeddings=512,
    rms_norm_eps=1e-5,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
    attention_bias=False,
    mlp_bias=False,
)

# initializer_range is large enough that the logits differ much from each other.
SHAPES = {
    "gqa4_dim128": dict(hidden_size=512, intermediate_size=1024, num_hidden_layers=3, num_attention_heads=8,
                        num_key_value_heads=2, head_dim=128, vocab_size=1000, tie_word_embeddings=False,
                        initializer_range=0.06, rope=dict(rope_type="default", rope_theta=500000.0)),
    "mha_dim64": dict(hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4,
                      num_key_value_heads=4, head_dim=64, vocab_size=512, tie_word_embeddings=False,
                      initializer_range=0.08, rope=dict(rope_type="default", rope_theta=10000.0)),
    "tied_llama3": dict(hidden_size=384, intermediate_size=1024, num_hidden_layers=3, num_attention_heads=6,
                        num_key_value_heads=2, head_dim=64, vocab_size=800, tie_word_embeddings=True,
                        initializer_range=0.06,
                        rope=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
                                  high_freq_factor=4.0, original_max_position_embeddings=64)),
    "tied_linear": dict(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
                        num_key_value_heads=1, head_dim=64, vocab_size=600, tie_word_embeddings=True,
                        initializer_range=0.08, rope=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
}


def make_config(shape):
    """Version 5 has rope_parameters, version 4 rope_theta and rope_scaling."""
    fields = {**COMMON, **shape}
    rope = fields.pop("rope")
    if int(transformers.__version__.split(".")[0]) >= 5:
        return LlamaConfig(**fields, rope_parameters=rope)
    scaling = {k: v for k, v in rope.items() if k != "rope_theta"}
    return LlamaConfig(**fields, rope_theta=rope["rope_theta"],
                       rope_scaling=None if rope["rope_type"] == "default" else scaling)


def make_model(shape, seed, folder, dtype):
    """Saves random weights in `dtype` and returns them as an fp32 model."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(make_config(shape))
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    model.to(dtype).save_pretrained(folder)
    # Read anew: `to` has rounded the frequencies of the rotary embedding too.
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@torch.no_grad()
def generate(model, prompt):
    """Greedy tokens, by the whole sequence each time: nothing depends on a cache."""
    ids = list(prompt)
    for _ in range(TOKENS):
        logits = model(torch.tensor([ids], device=model.device), use_cache=False).logits
        ids.append(int(logits[0, -1].argmax()))
    return ids[len(prompt):]


@torch.no_grad()
def logits_of(model, prompt, tokens):
    """Logits [TOKENS, vocab] that predict each of `tokens`."""
    ids = torch.tensor([prompt + tokens[:-1]], device=model.device)
    return model(ids, use_cache=False).logits[0, len(prompt) - 1:].float().cpu()


def run_llama(args, folder, more):
    command = [args.binary, "--model", folder, "--device", args.device, "--chunk", "32", "--ignore-eos", "--quiet"] + more
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)[:400]} ...\n{done.stdout}{done.stderr}")


def ids_text(ids):
    return ",".join(map(str, ids))


def read_logits(path, prompts):
    """The program's --logits file (logits.h) as one [TOKENS, vocab] per prompt."""
    with open(path, "rb") as f:
        data = f.read()
    magic, vocab, _, _ = struct.unpack_from("<4i", data)
    assert magic == 0x31474F4C, "not a file of logits"
    found = [dict() for _ in prompts]
    at, size = 16, 16 + 4 * vocab
    while at < len(data):
        request, position, _, _ = struct.unpack_from("<4i", data, at)
        row = torch.frombuffer(bytearray(data[at + 16:at + size]), dtype=torch.float32)
        found[request][position - (len(prompts[request]) - 1)] = row
        at += size
    return [torch.stack([rows[i] for i in range(TOKENS)]) for rows in found]


def compare_tokens(args, folder, prompts, expected):
    """fp32 on the host."""
    out = os.path.join(folder, "out.json")
    more = ["--dtype", "fp32", "--tokens", str(TOKENS), "--json", out]
    for prompt in prompts:
        more += ["--prompt-ids", ids_text(prompt)]
    run_llama(args, folder, more)
    with open(out) as f:
        got = json.load(f)
    same = [sum(a == b for a, b in zip(r["generated"], e)) for r, e in zip(got["requests"], expected)]
    return {"equal_tokens": same, "of": TOKENS, "passed": all(r["generated"] == e for r, e in zip(got["requests"], expected))}, got


def compare_logits(args, folder, prompts, expected, model):
    """bf16 against fp32, ours and theirs."""
    out, logits_path = os.path.join(folder, "out.json"), os.path.join(folder, "logits.bin")
    more = ["--dtype", "bf16", "--logits", logits_path, "--json", out]
    for prompt, tokens in zip(prompts, expected):
        more += ["--prompt-ids", ids_text(prompt), "--force-ids", ids_text(tokens[:-1])]
    run_llama(args, folder, more)
    with open(out) as f:
        got = json.load(f)
    ours = read_logits(logits_path, prompts)
    exact = [logits_of(model, p, t) for p, t in zip(prompts, expected)]
    half = LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(args.reference_device).eval()
    theirs = [logits_of(half, p, t) for p, t in zip(prompts, expected)]
    ours, exact, theirs = torch.cat(ours), torch.cat(exact), torch.cat(theirs)
    our_error = (ours - exact).abs().max().item()
    their_error = (theirs - exact).abs().max().item()
    top = exact.topk(2).values
    clear = (top[:, 0] - top[:, 1]) > our_error
    agree = ours.argmax(-1) == exact.argmax(-1)
    wrong = int((clear & ~agree).sum())
    return {
        "positions": len(exact),
        "max_error": our_error,
        "max_error_transformers_bf16": their_error,
        "mean_error": (ours - exact).abs().mean().item(),
        "mean_error_transformers_bf16": (theirs - exact).abs().mean().item(),
        "logits_std": exact.std().item(),
        "clear_positions": int(clear.sum()),
        "clear_positions_that_differ": wrong,
        "top_token_agrees": int(agree.sum()),
        "passed": our_error <= 2 * their_error and wrong == 0,
    }, got


def machine(args, got):
    result = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": args.commit,
        "device": args.device,
        "device_name": got["device"],
        "driver": got["driver"],
        "build": got["build"],
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "reference_device": args.reference_device,
    }
    if torch.cuda.is_available():
        result["torch_gpu"] = torch.cuda.get_device_name()
        try:
            query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            result["gpu_driver"] = subprocess.run(query, capture_output=True, text=True).stdout.split("\n")[0]
        except OSError:
            pass
    return result


def main():
    p = argparse.ArgumentParser(description="compare examples/llama with the transformers library")
    p.add_argument("--binary", required=True)
    p.add_argument("--device", default="host", help="of the program: host or cuda:N")
    p.add_argument("--reference-device", help="of transformers; default: cpu for host, else the GPU")
    p.add_argument("--out", help="JSON file for the result")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--commit", help="of the program; kept in the result")
    args = p.parse_args()
    transformers.utils.logging.disable_progress_bar()
    on_host = args.device == "host"
    args.reference_device = args.reference_device or ("cpu" if on_host else "cuda")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False

    results, passed, got = {}, True, None
    for number, (name, shape) in enumerate(SHAPES.items()):
        with tempfile.TemporaryDirectory() as folder:
            model = make_model(shape, args.seed + number, folder, torch.float32 if on_host else torch.bfloat16)
            model.to(args.reference_device)
            rng = torch.Generator().manual_seed(args.seed)
            prompts = [torch.randint(shape["vocab_size"], (n,), generator=rng).tolist() for n in PROMPT_LENGTHS]
            expected = [generate(model, prompt) for prompt in prompts]
            if on_host:
                result, got = compare_tokens(args, folder, prompts, expected)
            else:
                result, got = compare_logits(args, folder, prompts, expected, model)
            result["steps"] = got["reasons"]
        results[name] = {"shape": shape, **result}
        passed = passed and result["passed"]
        print(name, json.dumps(result), flush=True)

    report = {**machine(args, got), "passed": passed, "prompt_lengths": PROMPT_LENGTHS, "tokens": TOKENS, "results": results}
    if args.out:
        with open(args.out, "w") as f:
            json.dump(report, f, indent=1)
            f.write("\n")
    print("passed" if passed else "FAILED")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
