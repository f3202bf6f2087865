"""What a run has cost, and whether its tokens are right."""

import time

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

BOUNDS = {torch.float32: 1e-3, torch.bfloat16: 0.15}  # of margins; the logits of SHAPES have a deviation of 1


def report(rounds):
    """Prints what the best round has cost, and the host's time in each of them. Returns its requests. A machine that others share
    is slower at times: then all of Python is, and the round says nothing of the mode."""
    costs = [np.median(host[alone]) if alone.any() else 0.0 for host, _, _, _, alone in map(columns, rounds)]
    if len(rounds) > 1:
        times = " ".join(f"{cost / 1000:,.1f}" for cost in costs)
        print(f"host time of decodes, p50 of each round: {times} us; the one with the least:")
    best = rounds[int(np.argmin(costs))]
    report_round(*best)
    return best[0]


def columns(round_):
    """Of its steps: host, whole, decodes and chunks, and which of them decode three quarters of the most requests, or more."""
    host, whole, decodes, chunks = np.array(round_[1], np.int64).T
    return host, whole, decodes, chunks, (chunks == 0) & (decodes >= 0.75 * decodes[chunks == 0].max(initial=1))


def report_round(requests, times, seconds, preempted):
    prompt, output = sum(r.prompt_len for r in requests), sum(len(r.output) for r in requests)
    print(f"{len(requests)} requests, {len(times)} steps, {preempted} times a request was preempted")
    print(f"{prompt} tokens of prompts and {output} generated in {seconds:.3f} s: {output / seconds:,.0f} generated/s")
    host, whole, decodes, chunks, alone = columns((requests, times))
    if alone.any():
        mean, seconds = decodes[alone].mean(), np.median(whole[alone]) / 1e9
        print_times(f"decodes of {decodes[alone].min()} to {decodes[alone].max()} requests", host[alone])
        print(f"such a step takes {seconds * 1e6:,.0f} us (p50), with {mean:.1f} requests (mean): {mean / seconds:,.0f} tokens/s")
    if (chunks > 0).any():
        print_times("decodes and prompts", host[chunks > 0])


def print_times(name, nanoseconds):
    p50, p99 = np.percentile(nanoseconds, (50, 99)) / 1000
    mean = nanoseconds.mean() / 1000
    print(f"host time of {len(nanoseconds)} steps of {name}: p50 {p50:,.1f} us, p99 {p99:,.1f} us, mean {mean:,.1f} us")


def idle(engine, requests, steps=20):
    """Prints how long the GPU computes in steps that decode all of the requests, and how long it does not.

    Alike for every mode: the profiler tells when kernels and copies run, in some steps; the clock how long as many steps take
    without a profiler, which would slow down eager ones. The time between two kernels of a step is idle, too.
    """
    from torch.profiler import ProfilerActivity, profile

    def run():
        torch.cuda.synchronize()
        started = time.perf_counter_ns()
        for _ in range(steps):
            engine.step()
        torch.cuda.synchronize()
        return (time.perf_counter_ns() - started) / steps / 1000

    scheduler, preempted = engine.scheduler, engine.scheduler.preempted
    for request in requests:
        engine.add(request)
    while len(scheduler.decodes) < len(requests):
        engine.step()
        if scheduler.preempted > preempted or not scheduler.busy:
            raise SystemExit("--idle needs pages for all requests of a step, and a --max-len far above --prompt")
    run()
    wall = run()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        profiled = run()
    spans = [(e.start_ns(), e.start_ns() + e.duration_ns()) for e in profiler.profiler.kineto_results.events() if on_device(e)]
    busy = covered(spans) / steps / 1000
    print(
        f"a step of {len(requests)} decodes has {len(spans) / steps:.0f} kernels and copies, which take the GPU {busy:,.0f} us;"
    )
    print(f"the step takes {wall:,.0f} us ({profiled:,.0f} when profiled), so the GPU idles for {max(1 - busy / wall, 0):.1%}")


def on_device(event):
    return event.device_type() == torch.autograd.DeviceType.CUDA and event.duration_ns() > 0


def covered(spans):
    """How long at least one of the spans lasts."""
    total, end = 0, 0
    for first, last in sorted(spans):
        total += max(last - max(first, end), 0)
        end = max(end, last)
    return total


def attend_to_all(_layer, q, k, v):
    """Of one whole sequence."""
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    return sdpa(q, k, v, is_causal=True, enable_gqa=True)[0].transpose(0, 1)


@torch.no_grad()
def check(model, requests, bound=None):
    """Compares each token with eager logits of the whole sequence before it, in one pass without pages, chunks and batches. Where
    the first logit exceeds the second by more than the bound, it has to be the first. Returns how many are not."""
    device, dtype = model.embed.weight.device, model.embed.weight.dtype
    bound = bound or BOUNDS[dtype]
    gaps, margins = [], []
    for request in requests:
        ids = torch.tensor(request.tokens, device=device)
        places = torch.arange(len(ids), device=device)
        logits = model.logits(ids[:-1], places[:-1], places[request.prompt_len - 1 : -1], attend_to_all).float()
        best = logits.topk(2).values
        gaps.append(best[:, 0] - logits.gather(1, ids[request.prompt_len :, None])[:, 0])  # above that of the token taken
        margins.append(best[:, 0] - best[:, 1])
    gaps, margins = torch.cat(gaps), torch.cat(margins)
    wrong, other = int(((gaps > 0) & (margins > bound)).sum()), gaps[gaps > 0]
    print(f"{int((margins > bound).sum())} of {len(gaps)} tokens have a margin above {bound}: {wrong} of these are not eager's;")
    print(f"{len(other) - wrong} of the others are not: eager's logit is larger by {max(other.tolist(), default=0):.4f} at most")
    return wrong
