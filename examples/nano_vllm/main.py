"""nano-vllm as it is, or with its steps by cgr: tokens per second and the host's time for a step. See README.md.

    python main.py --make DIR                                 # random weights of Qwen3-0.6B's shape, and a tokenizer of numbers
    python main.py --model DIR --mode nano|nano-eager|cgr
    python main.py --compare before.json after.json           # greedy tokens that --tokens FILE has written
"""

import argparse
import atexit
import json
import os
import random
import statistics
import time

import torch

SHAPES = {
    "qwen3-0.6b": dict(hidden=1024, layers=28, heads=16, kv_heads=8, head_dim=128, intermediate=3072, vocabulary=151936),
    "tiny": dict(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, intermediate=96, vocabulary=512),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", metavar="DIR")
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-0.6b")
    parser.add_argument("--compare", nargs=2, metavar="FILE")
    parser.add_argument("--model", metavar="DIR")
    parser.add_argument("--mode", choices=("nano", "nano-eager", "cgr"), default="cgr")
    parser.add_argument("--device", default="cuda:0", help="cuda:0, or host in mode cgr")
    parser.add_argument("--blocks", type=int, default=-1, help="of 256 tokens; by default all that fit")
    parser.add_argument("--max-requests", type=int, default=128, help="in one step")
    parser.add_argument("--max-tokens", type=int, default=4096, help="in one step")
    parser.add_argument("--requests", type=int, nargs="*", default=[1, 16, 64], help="at a time, one measurement each")
    parser.add_argument("--prompt", type=int, default=128, help="tokens of a prompt")
    parser.add_argument("--output", type=int, default=128, help="tokens that a request generates")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--tokens", metavar="FILE", help="greedy tokens are written here, as JSON")
    return parser.parse_args()


# ---------------------------------------------------------------------------------------------------------- random weights


def make(folder, shape, seed=7):
    """In bf16. Embeddings are so small that the next token is seldom the last one again, and queries so large that each head
    attends to few tokens: what comes next depends on the whole sequence, and most tokens differ."""
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    s = SHAPES[shape]
    os.makedirs(folder, exist_ok=True)
    q, kv = s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
    sizes = {"self_attn.q_proj": (q, s["hidden"]), "self_attn.k_proj": (kv, s["hidden"]), "self_attn.v_proj": (kv, s["hidden"])}
    sizes |= {"self_attn.o_proj": (s["hidden"], q), "mlp.down_proj": (s["hidden"], s["intermediate"])}
    sizes |= {"mlp.gate_proj": (s["intermediate"], s["hidden"]), "mlp.up_proj": (s["intermediate"], s["hidden"])}
    sizes |= {"self_attn.q_norm": (s["head_dim"],), "self_attn.k_norm": (s["head_dim"],)}
    sizes |= {"input_layernorm": (s["hidden"],), "post_attention_layernorm": (s["hidden"],)}
    sizes = {f"layers.{i}.{name}": size for i in range(s["layers"]) for name, size in sizes.items()}
    sizes |= {"norm": (s["hidden"],), "embed_tokens": (s["vocabulary"], s["hidden"])}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    numbers = torch.Generator(device).manual_seed(seed)
    weights = {}
    for name, size in sizes.items():
        weight = torch.full(size, 2.0 if name.endswith("q_norm") else 1.0, device=device)
        if len(size) > 1:
            weight.normal_(0, 0.03 if name == "embed_tokens" else size[1] ** -0.5, generator=numbers)
        weights[f"model.{name}.weight"] = weight.bfloat16().cpu()
    save_file(weights, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    config = dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], torch_dtype="bfloat16", tie_word_embeddings=True)
    config |= dict(hidden_size=s["hidden"], num_hidden_layers=s["layers"], num_attention_heads=s["heads"], hidden_act="silu")
    config |= dict(num_key_value_heads=s["kv_heads"], head_dim=s["head_dim"], intermediate_size=s["intermediate"])
    config |= dict(vocab_size=s["vocabulary"], max_position_embeddings=40960, rope_theta=1000000, rms_norm_eps=1e-6)
    config |= dict(attention_bias=False, eos_token_id=1, bos_token_id=2)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    words = Tokenizer(models.WordLevel({str(i): i for i in range(s["vocabulary"])}, unk_token="0"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="1", unk_token="0").save_pretrained(folder)


# -------------------------------------------------------------------------------------------------------------- measurement


class Clock:
    """Times of steps: when the runner was asked, when all was enqueued, when the tokens had come."""

    def __init__(self, runner, launches, name):
        self.run, self.launch = runner.run, getattr(launches, name)
        runner.run = self.timed_run
        setattr(launches, name, self.timed_launch)

    def timed_run(self, *arguments):
        self.asked = self.enqueued = time.perf_counter()
        tokens = self.run(*arguments)
        self.answered = time.perf_counter()
        return tokens

    def timed_launch(self, *arguments):
        result = self.launch(*arguments)
        self.enqueued = time.perf_counter()
        return result


class Greedy:
    """nano-vllm's sampler takes the likeliest token, and how far its logit is above the second is kept. By itself the sampler
    leaves equal logits to chance at its smallest temperature."""

    def __init__(self, runner):
        self.runner, self.run, self.sampler = runner, runner.run, runner.sampler
        self.margins = {}  # by sequence and place
        runner.run, runner.sampler = self.noted_run, self.sample

    def sample(self, logits, _temperatures):
        best = logits.float().topk(2).values
        self.last = (best[:, 0] - best[:, 1]).tolist()
        return logits.argmax(-1)

    def noted_run(self, seqs, is_prefill):
        places = [(seq.seq_id, seq.num_tokens) for seq in seqs]
        tokens = self.run(seqs, is_prefill)
        self.margins.update(zip(places, self.last))  # of a prompt in chunks the last one stays
        return tokens

    def end(self):
        """The margins of each sequence's tokens."""
        self.runner.run, self.runner.sampler = self.run, self.sampler
        found = {}
        for (number, _), margin in sorted(self.margins.items()):
            found.setdefault(number, []).append(margin)
        return list(found.values())


def open_engine(options):
    fields = dict(max_model_len=4096, max_num_seqs=options.max_requests, max_num_batched_tokens=options.max_tokens)
    if options.mode == "cgr":
        import cgr_nano_vllm

        fields |= dict(num_kvcache_blocks=options.blocks)
        llm = cgr_nano_vllm.LLM(options.model, options.device, **fields)
    else:
        import nanovllm

        llm = nanovllm.LLM(options.model, enforce_eager=options.mode == "nano-eager", **fields)
        if options.blocks > 0:
            raise SystemExit("--blocks is for mode cgr: nano-vllm takes what it finds")
    return llm


def serve(llm, prompts, output, temperature, clock=None):
    """The tokens of each prompt, and of each step of decodes (launch, engine, whole) in seconds."""
    from nanovllm import SamplingParams

    first, outputs, times = {}, {}, []
    for prompt in prompts:
        llm.add_request(prompt, SamplingParams(temperature=temperature, max_tokens=output, ignore_eos=True))
    while not llm.is_finished():
        started = time.perf_counter()
        finished, count = llm.step()
        ended = time.perf_counter()
        outputs.update(finished)
        if clock is not None and count < 0:
            times.append((clock.enqueued - clock.asked, clock.asked - started + ended - clock.answered, ended - started))
    return [outputs[number] for number in sorted(outputs)], times


def measure(llm, options, vocabulary):
    runner = llm.model_runner
    clock = Clock(runner, runner, "launch" if options.mode == "cgr" else "sampler")
    measure_counts(llm, options, vocabulary, clock, options.mode)
    if options.mode == "cgr":
        runner.ahead = False
        measure_counts(llm, options, vocabulary, clock, "cgr, not ahead")


def measure_counts(llm, options, vocabulary, clock, name):
    numbers = random.Random(3)
    for count in options.requests:
        rates, decodes, all_times = [], [], []
        for _ in range(options.repeat + 1):
            prompts = [[numbers.randrange(vocabulary) for _ in range(options.prompt)] for _ in range(count)]
            started = time.perf_counter()
            _, times = serve(llm, prompts, options.output, 0.6, clock)
            rates.append(count * options.output / (time.perf_counter() - started))
            decodes.append(count * len(times) / sum(whole for _, _, whole in times))
            all_times += times
        all_times = all_times[len(all_times) // (options.repeat + 1) :]  # the first run warms up
        launch, engine, whole = (statistics.median(column) * 1e6 for column in zip(*all_times))
        rate, decode = statistics.median(rates[1:]), statistics.median(decodes[1:])
        print(
            f"{name:14} {count:4} requests: {rate:9,.0f} tokens/s with prompts, {decode:9,.0f} in decodes; a step of "
            f"decodes: {whole:8,.0f} us, of which the host prepares and launches {launch:8,.1f}, schedules {engine:7,.1f}",
            flush=True,
        )


def greedy(llm, vocabulary, output=48):
    """Of prompts of many lengths, two of which share blocks with an earlier one."""
    numbers = random.Random(11)
    prompts = [[numbers.randrange(vocabulary) for _ in range(numbers.randint(3, 700))] for _ in range(14)]
    prompts += [(prompts[0] * 200)[:600] + [5], (prompts[0] * 200)[:600] + [6, 7]]
    outputs = serve(llm, prompts[:1] + prompts[14:15], output, 1e-9)[0]  # their blocks are in the cache now
    return outputs + serve(llm, prompts, output, 1e-9)[0]


def compare(before, after):
    """Where greedy tokens part, and how sure the first of the two files was there, if it is nano-vllm's."""
    with open(before, encoding="utf-8") as one, open(after, encoding="utf-8") as other:
        (before, margins), (after, _) = json.load(one), json.load(other)
    pairs = list(zip(before, after, strict=True))
    lengths = [next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), len(a)) for a, b in pairs]
    whole = sum(length == len(a) for length, a in zip(lengths, before))
    print(f"greedy tokens: {whole} of {len(lengths)} sequences of {len(before[0])} are equal; equal from the start of each:")
    print(*lengths)
    print("distinct tokens of the first sequences:", *(len(set(tokens)) for tokens in before[:8]))
    parted = [found[length] for found, length in zip(margins, lengths) if length < len(found)]
    if margins:
        every = sorted(margin for found in margins for margin in found)
        where, middle = max(parted, default=0), statistics.median(every)
        print(f"margin of the first logit where they part: {where:.4f} at most; of all: {middle:.4f} (p50)")
    return lengths


def main():
    options = arguments()
    if options.make:
        return make(options.make, options.shape)
    if options.compare:
        return compare(*options.compare)
    started = time.perf_counter()
    llm = open_engine(options)
    blocks = len(llm.scheduler.block_manager.blocks)
    print(f"{options.mode:14} started in {time.perf_counter() - started:.1f} s, {blocks} blocks", flush=True)
    vocabulary = llm.model_runner.model.lm_head.weight.shape[0]
    if options.tokens:
        theirs = Greedy(llm.model_runner) if hasattr(llm.model_runner, "sampler") else None
        tokens = greedy(llm, vocabulary)
        with open(options.tokens, "w", encoding="utf-8") as file:
            json.dump((tokens, theirs.end() if theirs else []), file)
    if options.requests:
        measure(llm, options, vocabulary)
    atexit.unregister(llm.exit)
    llm.exit()


if __name__ == "__main__":
    main()
