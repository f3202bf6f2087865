"""The rules that an answer of the `llama` program must keep, compared with the logits of a reference.

An answer is what one run wrote: the tokens of each request (--json) and the logits that each was sampled from
(--logits). A rule is a function that returns complaints, an empty list when the answer keeps it. Needs Python 3.10, and
no PyTorch.

    python3 compare_rules.py        plants errors into made-up answers and shows that each is caught
"""

import array
import dataclasses
import json
import math
import operator
import random
import struct
import sys

# Limits of the logits' errors; see judge_fp32, judge_half and judge_leans.
FP32_MAX = 5e-4
FP32_MEAN = 2e-5
HALF_MAX_RATIO = 2.0
HALF_MEAN_RATIO = 1.3
LEAN_MAX = 0.5


@dataclasses.dataclass
class Answer:
    prompts: list  # [request] token ids
    generated: list  # [request] token ids
    logits: dict  # (request, position) -> (sampled token, row of fp32)
    report: dict  # the rest of --json


# ------------------------------------------------------------------------------------------------------------- reading


def read_logits(data):
    """The program's --logits file (logits.h): {(request, position): (token, row)}, and what is wrong with the file."""
    if len(data) < 16:
        return {}, [f"the file of logits has {len(data)} bytes, expected a header of 16"]
    magic, vocab, _, _ = struct.unpack_from("<4i", data)
    if magic != 0x31474F4C:
        return {}, [f"the file of logits begins with {magic:#x}, expected 0x31474f4c"]
    found, complaints, size = {}, [], 16 + 4 * vocab
    if (len(data) - 16) % size:
        complaints.append(f"the file of logits ends within a record of {size} bytes")
    for at in range(16, len(data) - size + 1, size):
        request, position, token, _ = struct.unpack_from("<4i", data, at)
        row = array.array("f")
        row.frombytes(data[at + 16 : at + size])
        if sys.byteorder == "big":
            row.byteswap()
        if (request, position) in found:
            complaints.append(f"request {request} has logits for position {position} twice")
        found[request, position] = (token, row)
    return found, complaints


def read_answer(json_text, logits_data):
    report = json.loads(json_text)
    requests = report.pop("requests", [])
    logits, complaints = read_logits(logits_data)
    answer = Answer([r.get("prompt") for r in requests], [r.get("generated") for r in requests], logits, report)
    return answer, complaints


# --------------------------------------------------------------------------------------------------------------- rules


def complete(answer, prompts, tokens, vocab):
    """Every request is there, whole, with the prompt that was asked and a row of logits for each token, and nothing else."""
    if not prompts or tokens < 1:
        return ["nothing was asked, expected at least one request and one token"]
    if len(answer.generated) != len(prompts):
        return [f"{len(answer.generated)} requests were answered, expected {len(prompts)}"]
    complaints, expected = [], set()
    for i, (prompt, got, generated) in enumerate(zip(prompts, answer.prompts, answer.generated, strict=True)):
        if got != prompt:
            complaints.append(f"request {i} has another prompt than was asked")
        if len(generated) != tokens:
            complaints.append(f"request {i} has {len(generated)} tokens, expected {tokens}")
    for i, prompt in enumerate(prompts):
        expected.update((i, len(prompt) - 1 + k) for k in range(tokens))
    missing, more = expected - answer.logits.keys(), answer.logits.keys() - expected
    if missing:
        complaints.append(f"{len(missing)} rows of logits are missing, the first for request, position {min(missing)}")
    if more:
        complaints.append(f"{len(more)} rows of logits were not asked for, the first for request, position {min(more)}")
    for key, (_, row) in answer.logits.items():
        if len(row) != vocab or not all(map(math.isfinite, row)):
            complaints.append(f"the logits for request, position {key} are not {vocab} finite numbers")
            break
    return complaints


def argmax(row):
    """The first of equals, as the program's sampler promises."""
    return max(range(len(row)), key=row.__getitem__)


def sampled(answer):
    """Each token is the argmax of the logits it was sampled from. Both are the program's own fp32 numbers, so no
    rounding excuses a difference, and of equal logits the first counts."""
    complaints, wrong = [], 0
    for (i, position), (token, row) in sorted(answer.logits.items()):
        k = position - (len(answer.prompts[i]) - 1)
        best = argmax(row)
        if token == best and answer.generated[i][k] == best:
            continue
        wrong += 1
        complaints.append(f"request {i}, token {k}: {answer.generated[i][k]} was returned and {token} sampled, expected "
                          f"{best}, the argmax of the logits")
    if wrong > 1:
        complaints[1:] = [f"and {wrong - 1} more tokens that are not the argmax of their logits"]
    return complaints


def same_tokens(answer, expected, margins, limit):
    """fp32: the reference's greedy tokens. They may diverge only where its best two logits are closer than two errors
    within the limit."""
    complaints, near_ties = [], 0
    if not len(answer.generated) == len(expected) == len(margins):
        return [f"{len(answer.generated)} requests, expected {len(expected)}"], 0
    for i, (got, wanted, margin) in enumerate(zip(answer.generated, expected, margins, strict=True)):
        if len(got) != len(wanted):
            complaints.append(f"request {i} has {len(got)} tokens, expected {len(wanted)}")
            continue
        parted = next((k for k in range(len(wanted)) if got[k] != wanted[k]), None)
        if parted is None:
            continue
        if margin[parted] <= 2 * limit:
            near_ties += 1
        else:
            complaints.append(f"request {i}, token {parted}: {got[parted]}, expected {wanted[parted]}, which leads by "
                              f"{margin[parted]:.3g}")
    return complaints, near_ties


def replayed(answer, asked):
    """The mode in use did what it says: graphs replayed, or none."""
    mode, reasons = answer.report.get("graph_mode"), answer.report.get("reasons", {})
    graphs = sum(n for name, n in reasons.items() if name.startswith(("full ", "piecewise ")))
    if asked == "none" and mode != "none":
        return [f"the graph mode is {mode}, expected none as asked"]
    if (mode == "none") != (graphs == 0):
        return [f"{graphs} steps replayed a graph in graph mode {mode}"]
    return []


# -------------------------------------------------------------------------------------------------------------- errors


def error_of(rows, exact):
    """(largest, mean) absolute difference of two lists of rows."""
    if len(rows) != len(exact) or not rows:
        raise ValueError(f"{len(rows)} rows, expected {len(exact)} and at least one")
    largest, total, count = 0.0, 0.0, 0
    for row, other in zip(rows, exact, strict=True):
        differences = [abs(a - b) for a, b in zip(row, other, strict=True)]
        largest = max(largest, max(differences))
        total += sum(differences)  # a NaN stays in the mean
        count += len(differences)
    return largest, total / count


def lean(rows, exact, planted):
    """How far the error leans towards that of a model with a planted mistake: 0 for rounding, 1 for the mistake itself."""
    along = square = 0.0
    for row, other, moved in zip(rows, exact, planted, strict=True):
        shift = list(map(operator.sub, moved, other))
        along += sum(map(operator.mul, map(operator.sub, row, other), shift))
        square += sum(map(operator.mul, shift, shift))
    return along / square


def answer_rows(answer, tokens):
    """The rows of all requests, in the order of prompts and positions."""
    return [answer.logits[i, len(prompt) - 1 + k][1] for i, prompt in enumerate(answer.prompts) for k in range(tokens)]


def over(what, got, limit):
    return [] if got <= limit else [f"the {what} is {got:.3g}, expected at most {limit:.3g}"]


def judge_fp32(largest, mean):
    """Both sides compute in fp32 and differ in the order of their sums alone."""
    return over("largest error", largest, FP32_MAX) + over("mean error", mean, FP32_MEAN)


def judge_half(largest, mean, their_largest, their_mean):
    """Ours and theirs against the same fp32 logits: theirs are what computing in that dtype costs."""
    if not (their_largest > 0 and their_mean > 0):
        return [f"the reference's own errors are {their_largest} and {their_mean}, expected more than 0"]
    return over("largest error", largest, HALF_MAX_RATIO * their_largest) + over("mean error", mean, HALF_MEAN_RATIO * their_mean)


def judge_leans(leans, their_leans):
    """{mistake: lean}, of the program and of the reference in its own precision. A mistake can hide beneath the rounding of
    bf16, where no limit on its size finds it. Rounding leans nowhere, but its share along a mistake grows as the mistake shrinks:
    if the reference, which does not make the mistake, reaches half the limit, the lean tells nothing."""
    return [complaint for name, share in leans.items() if abs(their_leans[name]) <= LEAN_MAX / 2
            for complaint in over(f"share of '{name}' in the error", abs(share), LEAN_MAX)]


# ----------------------------------------------------------------------------------------------------------- self-test


def alter(answer, **changes):
    """A copy whose parts can be changed without touching the answer."""
    copy = Answer(list(answer.prompts), [list(g) for g in answer.generated], dict(answer.logits), dict(answer.report))
    return dataclasses.replace(copy, **changes)


def all_zero(answer):
    return alter(answer, generated=[[0] * len(g) for g in answer.generated],
                 logits={key: (0, row) for key, (_, row) in answer.logits.items()})


def structural_plants(answer):
    """(name, answer) of answers that are not what was asked, from one that is."""
    last = len(answer.prompts) - 1
    first_key = min(answer.logits)
    token, row = answer.logits[first_key]
    other = (token + 1) % len(row)
    yield "all tokens 0", all_zero(answer)
    yield "tokens 0 in the JSON alone", alter(answer, generated=[[0] * len(g) for g in answer.generated])
    yield "no request", alter(answer, prompts=[], generated=[], logits={})
    fewer = {k: v for k, v in answer.logits.items() if k[0] != last}
    first, second, *rest = answer.generated
    yield "the last request missing", alter(answer, prompts=answer.prompts[:-1], generated=answer.generated[:-1], logits=fewer)
    yield "the last request's logits missing", alter(answer, logits=fewer)
    yield "a request one token short", alter(answer, generated=[first[:-1], second, *rest])
    yield "two requests changed places", alter(answer, generated=[second, first, *rest])
    yield "one sampled token not the argmax", alter(answer, logits={**answer.logits, first_key: (other, row)})
    yield "a row of logits for no request", alter(answer, logits={**answer.logits, (last, 1 << 20): (token, row)})
    yield "a NaN", alter(answer, logits={**answer.logits, first_key: (token, array.array("f", [math.nan] * len(row)))})


def structure(answer, prompts, tokens, vocab):
    """The rules that need no reference."""
    return complete(answer, prompts, tokens, vocab) or sampled(answer)


def made_up(rng, requests=4, tokens=6, vocab=32):
    prompts = [[rng.randrange(vocab) for _ in range(1 + 3 * i)] for i in range(requests)]
    answer = Answer(prompts, [[] for _ in prompts], {}, {})
    for i, prompt in enumerate(prompts):
        for k in range(tokens):
            row = array.array("f", [rng.gauss(0, 1) for _ in range(vocab)])
            answer.logits[i, len(prompt) - 1 + k] = (argmax(row), row)
            answer.generated[i].append(argmax(row))
    return answer, prompts, tokens, vocab


def noisy(rng, rows, scale):
    return [[x + rng.gauss(0, scale) for x in row] for row in rows]


def encode(answer, vocab):
    """The two files of an answer."""
    requests = [{"prompt": p, "generated": g} for p, g in zip(answer.prompts, answer.generated, strict=True)]
    report = {**answer.report, "requests": requests}
    data = struct.pack("<4i", 0x31474F4C, vocab, 0, 0)
    for (request, position), (token, row) in answer.logits.items():
        data += struct.pack("<4i", request, position, token, 0) + struct.pack(f"<{len(row)}f", *row)
    return json.dumps(report), data


def check(name, complaints, caught):
    """Prints a line; 1 when a plant was missed or a sound answer refused."""
    good = bool(complaints) == caught
    print(f"{'ok    ' if good else 'WRONG '} {name}: {complaints[0] if complaints else 'passes'}")
    return 0 if good else 1


def structure_tests(rng):
    answer, prompts, tokens, vocab = made_up(rng)
    wrong = check("a sound answer", structure(answer, prompts, tokens, vocab), False)
    again, complaints = read_answer(*encode(answer, vocab))
    wrong += check("the same, written and read", complaints + structure(again, prompts, tokens, vocab), False)
    wrong += check("a file of logits cut off", read_logits(encode(answer, vocab)[1][:-4])[1], True)
    wrong += check("nothing asked", structure(alter(answer, prompts=[], generated=[], logits={}), [], tokens, vocab), True)
    for name, planted in structural_plants(answer):
        wrong += check(name, structure(planted, prompts, tokens, vocab), True)
    for mode, reasons in ("full", {"eager not uniform": 3}), ("none", {"full exact": 3}):
        planted = alter(answer, report={"graph_mode": mode, "reasons": reasons})
        wrong += check(f"graph mode {mode} with the steps {reasons}", replayed(planted, mode), True)
    return wrong


def error_tests(rng):
    answer, _, tokens, vocab = made_up(rng)
    exact = answer_rows(answer, tokens)
    mistake = [[1.002 * x for x in row] for row in exact]
    theirs = error_of(noisy(rng, exact, 0.01), exact)

    def fp32(rows):
        return judge_fp32(*error_of(rows, exact))

    def half(rows):
        return judge_half(*error_of(rows, exact), *theirs)

    def leans(rows, their_lean=0.1):
        return judge_leans({"all +0.2%": lean(rows, exact, mistake)}, {"all +0.2%": their_lean})

    wrong = check("fp32 with an error of 1e-6", fp32(noisy(rng, exact, 1e-6)), False)
    wrong += check("fp32 with an error of 1e-3", fp32(noisy(rng, exact, 1e-3)), True)
    wrong += check("fp32 with one NaN", fp32([[math.nan] * vocab] + exact[1:]), True)
    wrong += check("half as good as the reference", half(noisy(rng, exact, 0.01)), False)
    wrong += check("half, with 1.5 times the reference's error", half(noisy(rng, exact, 0.015)), True)
    wrong += check("half next to a reference without error", judge_half(0.0, 0.0, 0.0, 0.0), True)
    wrong += check("half, with a mistake beneath the rounding, by size", half(noisy(rng, mistake, 0.01)), False)
    wrong += check("the same by its lean", leans(noisy(rng, mistake, 0.01)), True)
    wrong += check("rounding alone by its lean", leans(noisy(rng, exact, 0.001)), False)
    wrong += check("a lean that the reference has, too", leans(noisy(rng, mistake, 0.01), 0.3), False)
    return wrong


def token_tests(rng):
    answer, prompts, tokens, vocab = made_up(rng)
    other = [[(t + 1) % vocab for t in g] for g in answer.generated]
    clear, close = [[1.0] * tokens for _ in prompts], [[1e-5] * tokens for _ in prompts]

    def parted(expected, margins):
        return same_tokens(answer, expected, margins, FP32_MAX)[0]

    wrong = check("the reference's tokens", parted(answer.generated, clear), False)
    wrong += check("other tokens", parted(other, clear), True)
    wrong += check("other tokens at near ties", parted(other, close), False)
    wrong += check("fewer requests than the reference's", parted(other + other[:1], clear + clear[:1]), True)
    wrong += check("shorter requests than the reference's", parted([g + [0] for g in answer.generated], clear), True)
    return wrong


def self_test():
    rng = random.Random(1)
    wrong = structure_tests(rng) + error_tests(rng) + token_tests(rng)
    print("self-test", "passed" if wrong == 0 else f"FAILED {wrong} times")
    return 0 if wrong == 0 else 1


if __name__ == "__main__":
    sys.exit(self_test())
