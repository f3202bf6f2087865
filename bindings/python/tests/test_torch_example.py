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
        self.rows, self.free = {}, list(range(limits.max_requests))
        self.in_flight = ()  # rows of a step that may still run

    def open(self, tag):
        row = self.free.pop()
        self.rows[row] = types.SimpleNamespace(tag=tag, tokens=[], pages=[], made=None)
        return row

    def close(self, row):
        self.test.assertNotIn(row, self.in_flight, "a step that runs uses the row's pages")
        del self.rows[row]
        self.free.append(row)

    def set_pages(self, row, first, pages):
        self.test.assertEqual(first, len(self.rows[row].pages))
        self.rows[row].pages += pages
        owned = [page for state in self.rows.values() for page in state.pages]
        self.test.assertEqual(len(set(owned)), len(owned), "a page has two owners")
        self.test.assertTrue(all(2 <= page < self.limits.num_pages for page in pages))

    def launch(self, plan):
        self.test.assertLessEqual(len(plan.tokens), self.limits.max_tokens)
        self.test.assertLessEqual(len(plan.rows), self.limits.max_requests)
        tokens, results = plan.tokens.tolist(), []
        for row, count, computed in zip(plan.rows.tolist(), plan.query_lens.tolist(), plan.computed.tolist()):
            state, new, tokens = self.rows[row], tokens[:count], tokens[count:]
            self.test.assertEqual(computed, len(state.tokens))
            state.tokens += [state.made if token == scheduler.LAST else token for token in new]
            self.test.assertLessEqual(len(state.tokens), len(state.pages) * self.limits.page_size)
            state.made = following(state.tokens)
            results.append(state.made)
        self.in_flight = set(plan.rows.tolist())
        return results


@unittest.skipUnless(THERE, "no examples/torch_engine")
class Scheduler(unittest.TestCase):
    def serve(self, seed):
        numbers = random.Random(seed)
        limits = types.SimpleNamespace(page_size=4, num_pages=numbers.randint(12, 40), max_len=40)
        limits.max_requests, limits.max_tokens = numbers.randint(1, 6), numbers.randint(6, 24)
        runner = Runner(self, limits)
        s = scheduler.Scheduler(runner, limits)
        requests = [
            scheduler.Request(tag, [numbers.randrange(1000) for _ in range(numbers.randint(1, 25))], numbers.randint(1, 15))
            for tag in range(20)
        ]
        for request in requests:
            s.add(request)
        in_flight = None

        def sync():
            nonlocal in_flight
            done, in_flight, runner.in_flight = in_flight, None, ()
            if done is not None:
                s.take(*done)

        for _ in range(5000):
            if s.busy:
                plan = s.plan(sync)
                before, in_flight = in_flight, plan and (plan, runner.launch(plan))
                if plan is None:
                    runner.in_flight = ()
                if before is not None:
                    s.take(*before)
        self.assertFalse(s.busy, "requests are left")
        self.assertEqual(len(s.free), limits.num_pages - 2)
        for request in requests:
            expected = request.tokens[: request.prompt_len]
            for _ in range(request.count):
                expected.append(following(expected))
            self.assertEqual(request.tokens, expected)
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
            return None

        def capture(self, size, width):
            words = self.send(scheduler.make_plan([]), size, width)
            tokens = self.forward(words, size, size, width)

            def replay():
                Padded.replayed += 1
                tokens.copy_(self.forward(words, size, size, width))

            return types.SimpleNamespace(replay=replay), tokens


@unittest.skipUnless(TORCH, "no torch")
class Modes(unittest.TestCase):
    """With few pages, so that requests are preempted, and prompts in chunks."""

    def serve(self, mode, name, prompts, count=24, folder=None, runner=None):
        place = torch.device("cpu" if ON_HOST else DEVICE)
        limits = engine.Limits(24, max_requests=6, max_tokens=32, max_len=160)
        stream = contextlib.nullcontext() if ON_HOST else torch.cuda.stream(torch.cuda.Stream(place))
        with stream:
            made = model.make_model(folder or name, limits.max_len, place, torch.float32 if ON_HOST else torch.bfloat16)
            with mock.patch.dict(engine.RUNNERS, {mode: runner or engine.RUNNERS[mode]}):
                served = engine.Engine(mode, made, limits, place)
            for tag, prompt in enumerate(prompts):
                served.add(scheduler.Request(tag, prompt, count))
            requests = sorted(served.run(), key=lambda request: request.tag)
        if mode == "cgr":
            served.runner.runtime.close()
        self.assertGreater(served.scheduler.preempted, 0)
        return [request.output for request in requests]

    def prompts(self, seed=3):
        numbers = random.Random(seed)
        return [[numbers.randrange(512) for _ in range(numbers.randint(3, 90))] for _ in range(12)]

    def test_tokens_are_equal(self):
        for name in ("tiny", "tiny-qwen3"):
            with self.subTest(name):
                eager = self.serve("eager", name, self.prompts())
                for mode in ["cgr"] if ON_HOST else ["cgr", "graph"]:
                    other = self.serve(mode, name, self.prompts())
                    if ON_HOST:
                        self.assertEqual(other, eager)
                    else:  # bf16: the first tokens, for most requests
                        same = sum(a[:2] == b[:2] for a, b in zip(other, eager))
                        self.assertGreaterEqual(same, len(eager) * 0.6, mode)

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
        sizes = "--requests 3 --output 6 --max-requests 2 --max-tokens 32"
        before, sys.argv = sys.argv, ["main.py", "--mode", "cgr", "--device", DEVICE, *sizes.split()]
        try:
            with contextlib.redirect_stdout(text):
                main.main()
        finally:
            sys.argv = before
        expected = r"3 requests, \d+ steps, 0 times(.|\n)*generated/s(.|\n)*us \(p50\)(.|\n)*request 1: \d+"
        self.assertRegex(text.getvalue(), expected)

    @unittest.skipUnless(TORCH and ON_HOST, "where there is no GPU")
    def test_graphs_want_a_gpu(self):
        with self.assertRaisesRegex(SystemExit, "needs a GPU"):
            self.serve("graph", "tiny", self.prompts())


if __name__ == "__main__":
    unittest.main()
