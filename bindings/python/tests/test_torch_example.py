"""examples/torch_engine: its scheduler over a runner that computes nothing, and its modes against each other and transformers."""

import contextlib
import importlib.util
import io
import os
import random
import sys
import tempfile
import types
import unittest
from array import array
from unittest import mock

from support import ROOT

sys.path.insert(0, os.path.join(ROOT, "examples/torch_engine"))
THERE = os.path.exists(os.path.join(ROOT, "examples/torch_engine/scheduler.py"))
TORCH = THERE and importlib.util.find_spec("torch") is not None

if THERE:
    import scheduler
if TORCH:
    import engine
    import main
    import measure
    import model
    import torch
    from test_torch import DEVICE, ON_HOST


def following(tokens):
    """The token after these, of a model that no request shares with another."""
    return (sum(token * (i + 1) for i, token in enumerate(tokens)) + 7) % 1009


class Runner:
    """Keeps each row's tokens, and checks what a step is asked to do."""

    def __init__(self, test, limits):
        self.test, self.limits = test, limits
        self.rows, self.free, self.standing = {}, list(range(limits.max_requests)), []
        self.running = []  # pages of each step that has not been noted

    def open(self, tag, pages):
        row = self.free.pop()
        self.rows[row] = types.SimpleNamespace(tag=tag, tokens=[], pages=[], made=None)
        self.set_pages(row, 0, pages)
        return row

    def close(self, row):
        self.test.assertNotIn(row, self.standing)
        del self.rows[row]
        self.free.append(row)

    def set_pages(self, row, first, pages):
        self.test.assertEqual(first, len(self.rows[row].pages))
        self.test.assertTrue(all(used.isdisjoint(pages) for used in self.running), "a step that runs uses the pages")
        self.rows[row].pages += pages
        self.test.assertLessEqual(len(self.rows[row].pages) * self.limits.page_size, self.limits.max_len)
        owned = [page for state in self.rows.values() for page in state.pages]
        self.test.assertEqual(len(set(owned)), len(owned), "a page has two owners")
        self.test.assertTrue(all(2 <= page < self.limits.num_pages for page in pages))

    def join(self, row, position):
        self.test.assertEqual(position, len(self.rows[row].tokens))
        self.standing.append(row)

    def leave(self, row, place):
        self.test.assertEqual(self.standing[place], row)
        self.standing[place] = self.standing[-1]
        self.standing.pop()

    def launch(self, chunks):
        work = [(row, [self.rows[row].made]) for row in self.standing]
        for chunk in chunks:
            self.test.assertEqual(chunk.start, len(self.rows[chunk.row].tokens))
            work.append((chunk.row, chunk.tokens))
        self.test.assertEqual(len({row for row, _ in work}), len(work))
        self.test.assertLessEqual(len(work), self.limits.max_requests)
        self.test.assertLessEqual(sum(len(tokens) for _, tokens in work), self.limits.max_tokens)
        for row, tokens in work:
            state = self.rows[row]
            state.tokens += tokens
            self.test.assertLessEqual(len(state.tokens), len(state.pages) * self.limits.page_size)
            state.made = following(state.tokens)
        self.running.append({page for row, _ in work for page in self.rows[row].pages})
        return array("i", [self.rows[row].made for row, _ in work])


@unittest.skipUnless(THERE, "no examples/torch_engine")
class Scheduler(unittest.TestCase):
    def serve(self, seed):
        numbers = random.Random(seed)
        limits = types.SimpleNamespace(page_size=4, num_pages=numbers.randint(12, 40), max_len=40)
        limits.max_requests, limits.max_tokens = numbers.randint(1, 6), numbers.randint(7, 24)
        runner = Runner(self, limits)
        s = scheduler.Scheduler(runner, limits)
        requests = [
            scheduler.Request(tag, [numbers.randrange(1000) for _ in range(numbers.randint(1, 25))], numbers.randint(1, 15))
            for tag in range(20)
        ]
        for request in requests:
            s.add(request)
        in_flight = None

        def note(step):
            if step is not None:
                runner.running.pop(0)
                s.note(*step)

        def sync():
            nonlocal in_flight
            before, in_flight = in_flight, None
            note(before)

        for _ in range(5000):
            if s.busy:
                chunks = s.plan(sync)
                before, in_flight = in_flight, None
                if chunks is not None:
                    in_flight = chunks, runner.launch(chunks)
                note(before)
        self.assertFalse(s.busy, "requests are left")
        self.assertEqual(len(s.free), limits.num_pages - 2)
        for request in requests:
            expected = request.tokens[: request.prompt_len]
            for _ in range(request.end - request.prompt_len):
                expected.append(following(expected))
            self.assertEqual(request.tokens, expected)
        self.assertEqual((runner.rows, runner.standing, runner.running), ({}, [], []))
        return s.preempted

    def test_every_request_gets_its_tokens(self):
        preempted = 0
        for seed in range(200):
            with self.subTest(seed=seed):
                preempted += self.serve(seed)
        self.assertGreater(preempted, 100)

    def test_what_never_fits_is_refused(self):
        limits = types.SimpleNamespace(page_size=4, num_pages=6, max_requests=1, max_tokens=8, max_len=40)
        s = scheduler.Scheduler(None, limits)
        for prompt, count in (([], 1), ([1], 0), ([1] * 10, 7)):
            with self.assertRaisesRegex(ValueError, "request 5 has"):
                s.add(scheduler.Request(5, prompt, count))


if TORCH:

    class Padded(engine.GraphRunner):
        """Where there are no graphs: what they would compute, over the same static buffers."""

        replayed = 0

        def make_pool(self):
            pass

        def record(self, step):
            def replay():
                Padded.replayed += 1
                step()

            return replay


@unittest.skipUnless(TORCH, "no torch")
class Modes(unittest.TestCase):
    """With few pages, so that requests are preempted, and prompts in chunks. All tokens are compared with eager logits."""

    def serve(self, mode, name, prompts, counts=None, folder=None, runner=None, arrivals=None, limits=None):
        place = torch.device("cpu" if ON_HOST else DEVICE)
        limits = limits or engine.Limits(24, max_requests=6, max_tokens=32, max_len=160)
        counts, arrivals = counts or [24] * len(prompts), arrivals or [0] * len(prompts)
        stream = contextlib.nullcontext() if ON_HOST else torch.cuda.stream(torch.cuda.Stream(place))
        with stream:
            made = model.make_model(folder or name, limits.max_len, place, torch.float32 if ON_HOST else torch.bfloat16)
            with mock.patch.dict(engine.RUNNERS, {mode: runner or engine.RUNNERS[mode]}):
                served = engine.Engine(mode, made, limits, place)
            coming = [scheduler.Request(tag, *work) for tag, work in enumerate(zip(prompts, counts, arrivals))]
            requests = sorted(served.run(coming), key=lambda request: request.tag)
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(measure.check(made, requests), 0)
        if mode == "cgr":
            served.runner.runtime.close()
        self.assertGreater(served.scheduler.preempted, 0)
        self.assertEqual([len(request.output) for request in requests], counts)
        return [request.output for request in requests]

    def prompts(self, seed=3, count=12):
        numbers = random.Random(seed)
        return [[numbers.randrange(512) for _ in range(numbers.randint(3, 90))] for _ in range(count)]

    def test_tokens_are_equal(self):
        for name in ("tiny", "tiny-qwen3"):
            with self.subTest(name):
                eager = self.serve("eager", name, self.prompts())
                for mode in ["cgr"] if ON_HOST else ["cgr", "graph"]:
                    other = self.serve(mode, name, self.prompts())
                    if ON_HOST:  # in bf16 they differ once a margin is small
                        self.assertEqual(other, eager)

    def test_tokens_of_500_requests_that_come_and_go(self):
        numbers, prompts = random.Random(6), self.prompts(seed=4, count=500)
        counts = [numbers.randint(2, 60) for _ in prompts]
        work = dict(counts=counts, arrivals=[tag * 2 // 5 for tag in range(500)])
        limits = engine.Limits(280, max_requests=64, max_tokens=128, max_len=160)
        for mode in ["cgr"] if ON_HOST else ["cgr", "graph"]:
            with self.subTest(mode):
                self.serve(mode, "tiny", prompts, **work, limits=limits)

    def test_wrong_tokens_are_found(self):
        place = torch.device("cpu" if ON_HOST else DEVICE)
        made = model.make_model("tiny", 160, place, torch.float32)
        request, text = scheduler.Request(0, [1, 2, 3], 4), io.StringIO()
        for _ in range(4):
            places = torch.arange(len(request.tokens), device=place)
            attend = measure.attend_to_all
            with torch.no_grad():
                request.tokens.append(made(torch.tensor(request.tokens, device=place), places, places[-1:], attend).item())
        with contextlib.redirect_stdout(text):
            self.assertEqual(measure.check(made, [request]), 0)
            request.tokens[-1] = (request.tokens[-1] + 1) % 512
            self.assertEqual(measure.check(made, [request]), 1)
            self.assertEqual(measure.check(made, [request], bound=100), 0)
        self.assertRegex(
            text.getvalue(), r"4 of 4 tokens have a margin above 0.001: 1 of these are not eager's;\n0 of the others"
        )

    def test_time_that_is_covered(self):
        self.assertEqual(measure.covered([]), 0)
        self.assertEqual(measure.covered([(10, 20), (12, 15), (18, 25), (30, 31), (5, 6)]), 17)

    @unittest.skipUnless(TORCH and ON_HOST, "on a GPU they are graphs")
    def test_tokens_of_padded_decodes_are_equal(self):
        self.assertEqual(self.serve("graph", "tiny", self.prompts(), runner=Padded), self.serve("eager", "tiny", self.prompts()))
        self.assertGreater(Padded.replayed, 10)

    @unittest.skipUnless(TORCH and ON_HOST, "in fp32")
    def test_tokens_are_those_of_transformers(self):
        try:
            from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
        except ImportError:
            self.skipTest("no transformers")
        sizes = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
        sizes |= dict(intermediate_size=96, vocab_size=512, max_position_embeddings=256, initializer_range=0.2)
        stretch = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0)
        stretch |= dict(original_max_position_embeddings=32, rope_theta=10000.0)
        for config, kind in ((LlamaConfig, LlamaForCausalLM), (Qwen3Config, Qwen3ForCausalLM)):
            for tied in (False, True):
                torch.manual_seed(5)
                more = dict(rope_parameters=stretch) if tied and kind is LlamaForCausalLM else {}
                theirs = kind(config(**sizes, **more, tie_word_embeddings=tied, eos_token_id=None, pad_token_id=0)).eval()
                with self.subTest(kind.__name__, tied=tied), tempfile.TemporaryDirectory() as folder:
                    theirs.save_pretrained(folder)
                    ours = self.serve("cgr", None, self.prompts(), folder=folder)
                    for prompt, output in zip(self.prompts(), ours):
                        with torch.no_grad():
                            logits = theirs(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1]
                        taken = logits.gather(1, torch.tensor(output)[:, None])[:, 0]
                        self.assertLess((logits.max(1).values - taken).max().item(), 1e-3)

    def test_the_program_reports(self):
        text = io.StringIO()
        sizes = "--requests 3 --output 6 --max-requests 2 --max-tokens 32 --every 2 --check --repeat 2"
        before, sys.argv = sys.argv, ["main.py", "--mode", "cgr", "--device", DEVICE, *sizes.split()]
        try:
            with contextlib.redirect_stdout(text):
                main.main()
        finally:
            sys.argv = before
        expected = r"p50 of each round: ([\d,.]+ ){2}us; the one with the least:\n"
        expected += r"3 requests, \d+ steps, 0 times(.|\n)*generated/s\n"
        expected += r"host time of \d+ steps of decodes of [12] to [12] requests: p50 [\d,.]+ us, p99 [\d,.]+ us(.|\n)*"
        expected += r"request 1: \d+(.|\n)*\d+ of \d+ tokens have a margin above 0.\d+: 0 of these are not"
        self.assertRegex(text.getvalue(), expected)

    @unittest.skipUnless(TORCH and ON_HOST, "where there is no GPU")
    def test_graphs_want_a_gpu(self):
        with self.assertRaisesRegex(SystemExit, "needs a GPU"):
            self.serve("graph", "tiny", self.prompts())


if __name__ == "__main__":
    unittest.main()
