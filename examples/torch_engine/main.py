"""A small engine in three modes that share model, cache and scheduler: python main.py --mode eager|graph|cgr. See README.md."""

import argparse
import contextlib
import gc
import random
import time

import measure
import torch
from engine import RUNNERS, Engine, Limits
from model import SHAPES, make_model
from scheduler import Request
from text import Text


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=RUNNERS, default="cgr")
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "host", help="cuda:N or host")
    parser.add_argument("--model", default="tiny", help=f"a folder of Hugging Face's, or random weights: {', '.join(SHAPES)}")
    parser.add_argument("--text", action="append", help="a prompt, for folders with tokenizer.json; may be given several times")
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--prompt", type=int, default=100, help="the longest prompt, in tokens; the shortest has a tenth")
    parser.add_argument("--output", type=int, default=60, help="the most tokens that a request generates; the fewest are half")
    parser.add_argument("--pages", type=int, default=0, help="of 16 tokens; 0: enough for all requests of a step")
    parser.add_argument("--max-requests", type=int, default=16, help="in one step")
    parser.add_argument("--max-tokens", type=int, default=256, help="in one step: longer prompts come in chunks")
    parser.add_argument("--max-len", type=int, default=1024)
    parser.add_argument("--every", type=float, default=0, help="steps between two arrivals, on average; 0: all come at once")
    parser.add_argument("--repeat", type=int, default=1, help="rounds; printed is the one that cost the host the least")
    parser.add_argument("--check", action="store_true", help="compare tokens with eager logits")
    parser.add_argument("--bound", type=float, default=0, help="margin above which tokens must be equal; 0: by the type")
    parser.add_argument("--idle", action="store_true", help="measure how long the GPU idles in steps of decodes, afterwards")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=2, help="requests whose tokens are printed")
    return parser.parse_args()


def make_requests(options, vocabulary, step):
    """The first of them comes at this step."""
    numbers, arrival = random.Random(options.seed), float(step)
    for tag in range(options.requests):
        prompt = [numbers.randrange(vocabulary) for _ in range(numbers.randint(max(options.prompt // 10, 1), options.prompt))]
        yield Request(tag, prompt, numbers.randint(max(options.output // 2, 1), options.output), int(arrival))
        arrival += numbers.expovariate(1 / options.every) if options.every > 0 else 0


def make_engine(options):
    device = torch.device("cpu" if options.device == "host" else options.device)
    pages = options.pages or 2 + options.max_requests * -(-options.max_len // 16)
    limits = Limits(pages, max_requests=options.max_requests, max_tokens=options.max_tokens, max_len=options.max_len)
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    model = make_model(options.model, options.max_len, device, dtype, options.seed)
    return Engine(options.mode, model, limits, device), model


def serve(engine, coming):
    """A round: its requests in their order, its steps, the seconds that it took, and how often a request was preempted."""
    engine.times, engine.scheduler.finished, engine.scheduler.preempted = [], [], 0
    started = time.perf_counter()
    requests = sorted(engine.run(coming), key=lambda request: request.tag)
    return requests, engine.times, time.perf_counter() - started, engine.scheduler.preempted


def main():
    options = arguments()
    text = Text(options.model) if options.text else None
    with contextlib.ExitStack() as stack:
        if options.device != "host":
            device = torch.device(options.device)
            stack.enter_context(torch.cuda.device(device))
            stack.enter_context(torch.cuda.stream(torch.cuda.Stream(device)))
        engine, model = make_engine(options)
        vocabulary = model.shape.vocabulary
        gc.collect()
        gc.freeze()  # what has been made so far is not garbage, and need not be looked through again
        rounds = []
        for _ in range(options.repeat):
            if text:
                coming = list(text.requests(options.text, options.output, vocabulary))
            else:
                coming = list(make_requests(options, vocabulary, engine.scheduler.step))
            rounds.append(serve(engine, coming))
        requests = measure.report(rounds)
        for request in requests[: options.show]:
            print(f"request {request.tag}:", *([text.shown(request)] if text else [*request.output[:16], "..."]))
        wrong = measure.check(model, requests, options.bound) if options.check else 0
        if options.idle:
            count = options.max_len - options.prompt
            measure.idle(engine, [Request(tag, [1] * options.prompt, count) for tag in range(options.max_requests)])
    if wrong:
        raise SystemExit(f"{wrong} tokens are wrong")


if __name__ == "__main__":
    main()
