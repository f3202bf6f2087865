#!/usr/bin/env python3
"""Compare this engine with the transformers library on random-weight models: Llama, Mistral, Qwen2 and Qwen3.

    python3 compare_transformers.py --binary PATH/llama [--device host|cuda:0] [--dtype fp32|bf16] [--out RESULT.json]
        [--shapes NAME ...]
    python3 compare_transformers.py --self-test [--binary PATH/llama]

Makes a model per shape with random weights and runs the `llama` program on its folder in several settings: all graph
modes, page sizes and layouts, requests that share steps and that wait for each other, sequences of up to 575 tokens.
It checks the following of each run (compare_rules.py):

always  Every request is there, whole. Each token is the argmax of the logits that the program wrote for it. Graphs were
        replayed where the mode says so.
        The program feeds its tokens back on the device. The reference is fed the same tokens by this script, so logits
        that agree show that each next input was the token returned.
fp32    (the host's dtype) The logits are those of transformers in fp32 within a fixed limit, and the tokens are
        transformers' own greedy tokens, but for near ties within that limit.
bf16    (the GPU's dtype) Next to transformers in fp32 on the same weights, the largest error of the logits is at most
        twice that of transformers in bf16, the mean error at most 1.3 times, and the error does not lean towards that of
        a few planted mistakes (a softmax scale of +1%, a window of one token more, ...), which can hide beneath the
        rounding. A mistake so small that the rounding of transformers itself leans towards it is not judged.
        One more run is fed transformers' fp32 tokens one by one (--force-ids) and judged in the same way.

--self-test plants errors into answers of transformers itself, and with --binary also into the folders that the program
gets, and shows that they are caught. The limits and their reasons stand in compare_rules.py, which tests its rules
without PyTorch.

Needs PyTorch and transformers. Exits 1 if anything fails.
"""

import argparse
import array
import datetime
import json
import os
import platform
import random
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

import compare_rules as rules

TOKENS = 64
PROMPT_LENGTHS = (5, 33, 1, 70, 16, 17, 128, 2, 200, 64, 300, 511)
GRAPH_MODES = ("default", "none", "piecewise", "full", "full-decode-only", "full-and-piecewise")

COMMON = dict(
    hidden_act="silu",
    max_position_embeddings=1024,
    rms_norm_eps=1e-5,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)

# Named by transformers' model_type where it is no Llama. initializer_range is large enough that the logits differ much from each other.
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
    "llama_biases": dict(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=64, vocab_size=600, tie_word_embeddings=False,
                         initializer_range=0.08, attention_bias=True, rope=dict(rope_type="default", rope_theta=10000.0)),
    "mistral": dict(model_type="mistral", hidden_size=320, intermediate_size=768, num_hidden_layers=3,
                    num_attention_heads=4, num_key_value_heads=2, head_dim=128, vocab_size=700, tie_word_embeddings=False,
                    initializer_range=0.07, sliding_window=None, rope=dict(rope_type="default", rope_theta=1000000.0)),
    "mistral_window": dict(model_type="mistral", hidden_size=384, intermediate_size=768, num_hidden_layers=3,
                           num_attention_heads=6, num_key_value_heads=2, head_dim=64, vocab_size=700,
                           tie_word_embeddings=False, initializer_range=0.06, sliding_window=50,
                           rope=dict(rope_type="default", rope_theta=10000.0)),
    "qwen2": dict(model_type="qwen2", hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
                  num_key_value_heads=2, vocab_size=600, tie_word_embeddings=True, initializer_range=0.08,
                  rope=dict(rope_type="default", rope_theta=1000000.0)),
    "qwen2_windows": dict(model_type="qwen2", hidden_size=512, intermediate_size=768, num_hidden_layers=4,
                          num_attention_heads=4, num_key_value_heads=1, vocab_size=600, tie_word_embeddings=False,
                          initializer_range=0.06, use_sliding_window=True, sliding_window=100, max_window_layers=2,
                          rope=dict(rope_type="default", rope_theta=10000.0)),
    "qwen3": dict(model_type="qwen3", hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=128, vocab_size=600, tie_word_embeddings=True, initializer_range=0.08,
                  rope=dict(rope_type="default", rope_theta=1000000.0)),
    "qwen3_biases_windows": dict(model_type="qwen3", hidden_size=256, intermediate_size=512, num_hidden_layers=4,
                                 num_attention_heads=6, num_key_value_heads=3, head_dim=64, vocab_size=600,
                                 tie_word_embeddings=False, initializer_range=0.08, attention_bias=True,
                                 use_sliding_window=True, sliding_window=37,
                                 layer_types=["sliding_attention", "full_attention"] * 2,
                                 rope=dict(rope_type="default", rope_theta=10000.0)),
}


def settings(shape_number):
    """One per graph mode; across the shapes, every mode meets every page size and layout, and every page size both layouts."""
    for m, mode in enumerate(GRAPH_MODES):
        k = m + shape_number
        yield {"mode": mode, "page-size": (16, 32, 64)[k % 3], "kv-layout": ("nhd", "hnd")[k % 2],
               "concurrent": (12, 5, 3)[(m + 2 * shape_number) % 3], "chunk": (32, 128, 9)[m % 3]}


def chosen_shapes(args):
    """(number, name, shape): the numbers, and with them seeds and settings, are the same for a part of the shapes."""
    return [(number, name, shape) for number, (name, shape) in enumerate(SHAPES.items()) if name in args.shapes]


# ----------------------------------------------------------------------------------------------------------- reference


def make_config(shape):
    """Version 5 has rope_parameters, version 4 rope_theta and rope_scaling."""
    fields = {**COMMON, **shape}
    rope, model_type = fields.pop("rope"), fields.pop("model_type", "llama")
    if int(transformers.__version__.split(".")[0]) >= 5:
        return AutoConfig.for_model(model_type, **fields, rope_parameters=rope)
    scaling = {k: v for k, v in rope.items() if k != "rope_theta"}
    return AutoConfig.for_model(model_type, **fields, rope_theta=rope["rope_theta"],
                                rope_scaling=None if rope["rope_type"] == "default" else scaling)


def save_model(shape, seed, folder, dtype):
    """Random weights, rounded to `dtype`."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(make_config(shape))
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
        elif name.endswith(".bias"):
            torch.nn.init.normal_(weight, 0.0, shape["initializer_range"])
    model.to(dtype).save_pretrained(folder)


def load_model(folder, dtype, device):
    """Read anew: rounding a model would round the frequencies of its rotary embedding too."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()


@torch.no_grad()
def logits_of(model, prompt, tokens):
    """Logits that predict each of `tokens`, by the whole sequence at once: nothing depends on a cache."""
    ids = torch.tensor([prompt + tokens[:-1]], device=model.device)
    return model(ids, use_cache=False).logits[0, len(prompt) - 1:].float().cpu()


@torch.no_grad()
def decode(model, prompt, feed=lambda token: token):
    """Greedy tokens and the logits of each, token by token with a cache. `feed` changes what the model is fed."""
    tokens, rows, inputs, cache = [], [], list(prompt), None
    while len(tokens) < TOKENS:
        out = model(torch.tensor([inputs], device=model.device), past_key_values=cache, use_cache=True)
        cache, logits = out.past_key_values, out.logits[0, -1].float()
        rows.append(array.array("f", logits.tolist()))
        tokens.append(int(logits.argmax()))
        inputs = [feed(tokens[-1])]
    return tokens, rows


def greedy(model, prompt):
    """Greedy tokens, checked and mended by whole sequences."""
    tokens, _ = decode(model, prompt)
    for _ in range(TOKENS):
        best = logits_of(model, prompt, tokens).argmax(-1).tolist()
        wrong = next((k for k in range(TOKENS) if best[k] != tokens[k]), None)
        if wrong is None:
            break
        tokens = tokens[:wrong] + best[wrong:]
    return tokens


# ---------------------------------------------------------------------------------------------------- planted mistakes


def plant_scale(model):
    """The softmax scale is 1% too large."""
    for layer in model.model.layers:
        layer.self_attn.scaling *= 1.01


def plant_mlp(model):
    """Each MLP's output is 2% too large."""
    for layer in model.model.layers:
        layer.mlp.register_forward_hook(lambda module, inputs, out: out * 1.02)


def plant_eps(model):
    """The norms' epsilon is 1e-6, not 1e-5."""
    for module in model.modules():
        if hasattr(module, "variance_epsilon"):
            module.variance_epsilon = 1e-6


def plant_window(model):
    """Windows are one token too long."""
    model.config.sliding_window += 1


PLANTS = {"softmax scale +1%": plant_scale, "MLP +2%": plant_mlp, "eps 1e-6 for 1e-5": plant_eps}
WINDOW_PLANTS = {"window +1": plant_window}


def plants_of(shape):
    return {**PLANTS, **WINDOW_PLANTS} if shape.get("sliding_window") else PLANTS


def planted_model(folder, dtype, device, plant):
    model = load_model(folder, dtype, device)
    if plant:
        {**PLANTS, **WINDOW_PLANTS}[plant](model)
    return model


# ------------------------------------------------------------------------------------------------------------ judging


def rows_of(tensor):
    return [array.array("f", row) for row in tensor.tolist()]


class Reference:
    """Rows of logits of one model for (prompt, tokens), computed once each."""

    def __init__(self, model):
        self.model, self.known = model, {}

    def rows(self, prompts, generated):
        rows = []
        for prompt, tokens in zip(prompts, generated, strict=True):
            key = (tuple(prompt), tuple(tokens))
            if key not in self.known:
                self.known[key] = rows_of(logits_of(self.model, prompt, tokens))
            rows += self.known[key]
        return rows


class Case:
    """A shape with its folder, prompts and references."""

    def __init__(self, args, number, shape, folder):
        self.shape, self.folder, self.half = shape, folder, args.dtype == "bf16"
        self.device = args.reference_device
        save_model(shape, args.seed + number, folder, torch.bfloat16 if self.half else torch.float32)
        rng = random.Random(args.seed)
        self.prompts = [[rng.randrange(shape["vocab_size"]) for _ in range(n)] for n in PROMPT_LENGTHS]
        self.exact = Reference(load_model(folder, torch.float32, self.device))
        if self.half:
            self.theirs = Reference(load_model(folder, torch.bfloat16, self.device))
            self.planted = {name: Reference(planted_model(folder, torch.float32, self.device, name))
                            for name in plants_of(shape)}
        self.expected = [greedy(self.exact.model, prompt) for prompt in self.prompts]

    def margins(self):
        """How far the best logit leads, for each of the expected tokens."""
        found = []
        for prompt, tokens in zip(self.prompts, self.expected, strict=True):
            top = torch.tensor(self.exact.rows([prompt], [tokens])).topk(2).values
            found.append((top[:, 0] - top[:, 1]).tolist())
        return found

    def judge(self, answer, fed=None):
        """Measured figures and complaints. `fed`: the tokens that the program was fed; None: its own."""
        complaints = rules.structure(answer, self.prompts, TOKENS, self.shape["vocab_size"])
        if complaints:
            return {}, complaints
        fed = fed or answer.generated
        exact, ours = self.exact.rows(self.prompts, fed), rules.answer_rows(answer, TOKENS)
        largest, mean = rules.error_of(ours, exact)
        measured = {"max_error": largest, "mean_error": mean, "rows": len(ours)}
        if not self.half:
            measured.update(max_error_limit=rules.FP32_MAX, mean_error_limit=rules.FP32_MEAN)
            tokens, measured["near_ties"] = rules.same_tokens(answer, self.expected, self.margins(), rules.FP32_MAX)
            return measured, rules.judge_fp32(largest, mean) + tokens
        theirs = self.theirs.rows(self.prompts, fed)
        their_largest, their_mean = rules.error_of(theirs, exact)
        measured.update(max_error_transformers=their_largest, mean_error_transformers=their_mean,
                        max_ratio=largest / their_largest, mean_ratio=mean / their_mean)
        planted = {name: model.rows(self.prompts, fed) for name, model in self.planted.items()}
        leans = {name: rules.lean(ours, exact, rows) for name, rows in planted.items()}
        their_leans = {name: rules.lean(theirs, exact, rows) for name, rows in planted.items()}
        measured.update(max_lean=max(map(abs, leans.values())), leans=leans, leans_transformers=their_leans)
        return measured, rules.judge_half(largest, mean, their_largest, their_mean) + rules.judge_leans(leans, their_leans)


# ------------------------------------------------------------------------------------------------------------- program


def ids_text(ids):
    return ",".join(map(str, ids))


def ask(args, folder, prompts, setting, forced=None):
    """One run of the program: its answer, and what is wrong with its files."""
    with tempfile.TemporaryDirectory() as outputs:
        paths = {name: os.path.join(outputs, name) for name in ("json", "logits")}
        command = [args.binary, "--model", folder, "--device", args.device, "--dtype", args.dtype, "--temperature", "0",
                   "--ignore-eos", "--quiet"]
        command += [word for name, value in {**setting, **paths}.items() for word in (f"--{name}", str(value))]
        command += [] if forced else ["--tokens", str(TOKENS)]
        for prompt in prompts:
            command += ["--prompt-ids", ids_text(prompt)]
        for tokens in forced or []:
            command += ["--force-ids", ids_text(tokens[:-1])]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)[:400]} ...\n{done.stdout}{done.stderr}")
        with open(paths["json"]) as text, open(paths["logits"], "rb") as logits:
            return rules.read_answer(text.read(), logits.read())


def run_case(args, case, number):
    """All settings of a shape, and the run with forced tokens."""
    results, report = [], None
    runs = [(setting, None) for setting in settings(number)]
    runs.append((next(settings(number)), case.expected))
    for setting, forced in runs:
        answer, complaints = ask(args, case.folder, case.prompts, setting, forced)
        measured, more = case.judge(answer, forced)
        complaints += more + rules.replayed(answer, setting["mode"])
        report = answer.report
        results.append({**setting, "forced": forced is not None, "graph_mode": report["graph_mode"],
                        "reasons": report["reasons"], **measured, "complaints": complaints})
        print("  ", "FAILED" if complaints else "passed", json.dumps(results[-1]), flush=True)
    return results, report


def figures(results):
    """The largest of each measured figure, for one readable line."""
    keys = [key for key in results[0] if key.startswith(("max_", "mean_", "near_")) and all(key in r for r in results)]
    return ", ".join(f"{key} {max(r[key] for r in results):.3g}" for key in keys)


# ----------------------------------------------------------------------------------------------------------- self-test


def answer_of(model, prompts, feed=lambda token: token):
    """An answer as the program would write it, by transformers."""
    answer = rules.Answer(prompts, [], {}, {})
    for i, prompt in enumerate(prompts):
        tokens, rows = decode(model, prompt, feed)
        answer.generated.append(tokens)
        for k, row in enumerate(rows):
            answer.logits[i, len(prompt) - 1 + k] = (tokens[k], row)
    return answer


def test_case(case, name):
    """Plants into answers of transformers in the dtype of the program."""
    wrong = 0
    dtype = torch.bfloat16 if case.half else torch.float32
    for plant in (None, *plants_of(case.shape)):
        answer = answer_of(planted_model(case.folder, dtype, case.device, plant), case.prompts)
        measured, complaints = case.judge(answer)
        wrong += rules.check(f"{name}, planted: {plant or 'nothing'} ({figures([measured])})", complaints, plant is not None)
        for structural, planted in rules.structural_plants(answer) if plant is None else ():
            wrong += rules.check(f"{name}, planted: {structural}", case.judge(planted)[1], True)
    other = answer_of(load_model(case.folder, dtype, case.device), case.prompts, lambda token: 0)
    wrong += rules.check(f"{name}, planted: token 0 fed in place of each sampled one", case.judge(other)[1], True)
    return wrong


def planted_folders(case):
    """Folders whose model has the same planted errors, for the program to run."""
    for plant in (None, *plants_of(case.shape)):
        with tempfile.TemporaryDirectory() as folder:
            model = load_model(case.folder, torch.float32, "cpu")
            with torch.no_grad():
                for layer in model.model.layers:
                    scaled = getattr(layer.self_attn, "q_norm", layer.self_attn.q_proj)  # a norm would undo it
                    for weight in scaled.parameters():
                        weight *= 1.01 if plant == "softmax scale +1%" else 1.0
                    layer.mlp.down_proj.weight *= 1.02 if plant == "MLP +2%" else 1.0
            if plant == "window +1":
                plant_window(model)
            model.config.rms_norm_eps = 1e-6 if plant == "eps 1e-6 for 1e-5" else 1e-5
            model.save_pretrained(folder)
            yield plant, folder


def self_test(args):
    wrong = rules.self_test()
    for dtype in ("fp32", "bf16"):
        args.dtype = dtype
        for number, name, shape in chosen_shapes(args):
            with tempfile.TemporaryDirectory() as folder:
                case = Case(args, number, shape, folder)
                wrong += test_case(case, f"{dtype} {name}")
                for plant, planted in planted_folders(case) if args.binary else ():
                    answer, complaints = ask(args, planted, case.prompts, next(settings(number)))
                    measured, more = case.judge(answer)
                    wrong += rules.check(f"{dtype} {name}, the program, planted: {plant or 'nothing'} ({figures([measured])})",
                                         complaints + more, plant is not None)
    print("self-test with transformers", "passed" if wrong == 0 else f"FAILED {wrong} times")
    return 0 if wrong == 0 else 1


# ---------------------------------------------------------------------------------------------------------------- main


def machine(args, report):
    result = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": args.commit,
        "device": args.device,
        "dtype": args.dtype,
        "device_name": report["device"],
        "driver": report["driver"],
        "build": report["build"],
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


def compare(args):
    shapes, passed, report = {}, True, None
    for number, name, shape in chosen_shapes(args):
        with tempfile.TemporaryDirectory() as folder:
            print(name, flush=True)
            results, report = run_case(args, Case(args, number, shape, folder), number)
        good = not any(r["complaints"] for r in results)
        passed = passed and good
        shapes[name] = {"shape": shape, "passed": good, "runs": results}
        print(f"{name}: {'passed' if good else 'FAILED'} in {len(results)} runs; the largest: {figures(results)}", flush=True)
    if args.out:
        with open(args.out, "w") as f:
            json.dump({**machine(args, report), "passed": passed, "prompt_lengths": PROMPT_LENGTHS, "tokens": TOKENS,
                       "results": shapes}, f, indent=1)
            f.write("\n")
    print("passed" if passed else "FAILED")
    return 0 if passed else 1


def main():
    p = argparse.ArgumentParser(description="compare examples/llama with the transformers library")
    p.add_argument("--binary", help="the llama program")
    p.add_argument("--device", default="host", help="of the program: host or cuda:N")
    p.add_argument("--dtype", choices=("fp32", "bf16"), help="of the program; default: fp32 for host, else bf16")
    p.add_argument("--reference-device", help="of transformers; default: cpu for host, else the GPU")
    p.add_argument("--self-test", action="store_true", help="plant errors and show that they are caught")
    p.add_argument("--out", help="JSON file for the result")
    p.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), metavar="NAME", help="only these of the models")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--commit", help="of the program; kept in the result")
    args = p.parse_args()
    if not args.binary and not args.self_test:
        p.error("--binary is missing, expected the path of the llama program")
    transformers.utils.logging.disable_progress_bar()
    on_host = args.device == "host"
    args.dtype = args.dtype or ("fp32" if on_host else "bf16")
    args.reference_device = args.reference_device or ("cpu" if on_host else "cuda")
    torch.set_num_threads(1)  # the shapes are small: more threads wait for each other
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return self_test(args) if args.self_test else compare(args)


if __name__ == "__main__":
    sys.exit(main())
