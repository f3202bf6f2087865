"""examples/nano_vllm: its sampling, and nano-vllm's own scheduler, block manager and model over cgr against transformers.

The second needs nano-vllm, of which nothing is kept here: PYTHONPATH=folder of its commit, and xxhash. It is skipped without.
"""

import atexit
import collections
import contextlib
import importlib.util
import io
import json
import os
import random
import sys
import tempfile
import types
import unittest
from unittest import mock

from support import ROOT

import cgr

FOLDER = os.path.join(ROOT, "examples/nano_vllm")
sys.path.insert(0, FOLDER)


def has(*modules):
    return all(importlib.util.find_spec(name) for name in modules)


TORCH = os.path.exists(os.path.join(FOLDER, "sampling.py")) and has("torch")
ENGINE = TORCH and has("nanovllm", "xxhash", "triton", "transformers", "safetensors")

if TORCH:
    import main
    import sampling
    import torch
    from test_torch import ON_HOST


@unittest.skipUnless(TORCH, "no torch, or no examples/nano_vllm")
class Sampling(unittest.TestCase):
    def sample(self, logits, temperature, seeds, positions):
        temperatures = torch.full((len(logits),), temperature)
        with torch.compiler.set_stance("force_eager"):
            return sampling.sample(logits, temperatures, torch.tensor(seeds).int(), torch.tensor(positions).int())

    def test_frequencies_are_the_probabilities(self):
        logits, count = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5]), 40000
        for temperature in (0.5, 1.0, 2.0):
            tokens = self.sample(logits.expand(count, -1), temperature, range(count), [17] * count)
            shares, expected = torch.bincount(tokens, minlength=5) / count, torch.softmax(logits / temperature, 0)
            with self.subTest(temperature=temperature):
                self.assertLess((shares - expected).abs().max().item(), 4 * 0.5 / count**0.5)

    def test_noise_follows_seed_and_position_alone(self):
        logits, seeds = torch.zeros(4, 5000), [3, 3, 4, -3]
        one = self.sample(logits, 1.0, seeds, [8, 9, 8, 8])
        self.assertEqual(len(set(one.tolist())), 4)
        self.assertEqual(self.sample(logits[:2], 1.0, [4, 3], [8, 8]).tolist(), one[[2, 0]].tolist())

    def test_a_small_temperature_takes_the_first_of_the_largest(self):
        logits = torch.tensor([[1.0, 5.0, 5.0, 4.9], [2.0, 1.0, 0.0, 1.9]])
        for seed in range(50):
            self.assertEqual(self.sample(logits, 1e-9, [seed, seed + 1], [0, seed]).tolist(), [1, 0])

    def test_noise_is_finite_whatever_the_bits(self):
        self.assertTrue(sampling.gumbel(torch.tensor([0, 1, 255, 511, 0xFFFFFFFF, 0xFFFFFE00, 0x80000000])).isfinite().all())


@unittest.skipUnless(TORCH, "no torch, or no examples/nano_vllm")
class GreedyTokens(unittest.TestCase):
    """Those of nano-vllm's runner, in place of which is one that knows its logits."""

    class Runner:
        steps = 0

        def run(self, seqs, _is_prefill):
            self.steps += 1
            return self.sampler(torch.tensor([[1.25 * self.steps, 0.5, seq.seq_id] for seq in seqs]), None).tolist()

        def sampler(self, _logits, _temperatures):
            raise AssertionError("the sampler that is replaced")

    def test_margins_are_those_of_each_token(self):
        runner = self.Runner()
        before, found = runner.run, main.Greedy(runner)
        for step, lengths in enumerate(((5, 5), (5, 5), (6, 6), (7, 7)), 1):  # the prompt of 5 comes in two chunks
            seqs = [types.SimpleNamespace(seq_id=number, num_tokens=length) for number, length in zip((9, 3), lengths)]
            self.assertEqual(runner.run(seqs, step < 3), [2, 2 if step < 3 else 0])
        self.assertEqual(found.end(), [[0.5, 0.75, 2.0], [6.5, 5.25, 4.0]])
        self.assertEqual((runner.run, runner.sampler), (before, found.sampler))

    def test_tokens_that_part(self):
        with tempfile.TemporaryDirectory() as folder:
            before, after = (os.path.join(folder, name) for name in ("before", "after"))
            theirs, ours = ([[1, 2, 3], [4, 5, 6]], [[7, 0.25, 8], [9, 9, 9]]), ([[1, 3, 3], [4, 5, 6]], [])
            for path, found in ((before, theirs), (after, ours)):
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(found, file)
            for pair, expected in (
                ((before, after), "they part: 0.2500 at most; of all: 8.5000"),
                ((after, before), "sequences: 2 3$"),
            ):
                with contextlib.redirect_stdout(io.StringIO()) as text:
                    self.assertEqual(main.compare(*pair), [1, 3])
                self.assertRegex(text.getvalue().rstrip(), expected)


@unittest.skipUnless(ENGINE and ON_HOST, "nano-vllm, xxhash, triton or transformers cannot be imported, or this is a GPU")
class Engine(unittest.TestCase):
    """Few blocks, so that sequences are preempted, and steps of so few tokens that prompts come in chunks."""

    BLOCKS = 9

    @classmethod
    def setUpClass(cls):
        import cgr_nano_vllm
        from transformers import Qwen3ForCausalLM

        cls.adapter = cgr_nano_vllm
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        main.make(cls.folder.name, "tiny")
        torch.set_num_threads(1)
        cls.theirs = Qwen3ForCausalLM.from_pretrained(cls.folder.name, dtype=torch.float32).eval()

    @contextlib.contextmanager
    def engine(self, schedule=0, **fields):
        """Over the validation layer, which sees pages that change their owner too early."""
        device = cgr.Device("host", layer=True, host_schedule=schedule)
        fields = dict(max_num_seqs=4, max_num_batched_tokens=300, max_model_len=1024, num_kvcache_blocks=self.BLOCKS) | fields
        llm = self.adapter.LLM(self.folder.name, device, **fields)
        atexit.unregister(llm.exit)
        try:
            yield llm
        finally:
            manager = llm.scheduler.block_manager
            left = len(llm.model_runner.rows), len(llm.model_runner.made), len(manager.used_block_ids)
            llm.exit()
            device.close()
        self.assertEqual(left, (0, 0, 0))

    def serve(self, llm, requests, numbers, temperature=1e-9, ignore_eos=True):
        """Requests (prompt, count), some of which come while others run. Their tokens, and what has happened."""
        from nanovllm import SamplingParams

        scheduler, runner, seen = llm.scheduler, llm.model_runner, collections.Counter()
        preempt, allocate, launch = scheduler.preempt, scheduler.block_manager.allocate, runner.launch

        def counted_preempt(seq):
            seen["preempted"] += 1
            preempt(seq)

        def counted_allocate(seq, cached):
            seen["cached"] += cached
            allocate(seq, cached)

        def counted_launch(seqs, fields={}):
            partial = fields.get("flags", []).count(cgr.RequestFlag.PARTIAL)
            seen["chunks"] += partial
            seen["tokens"] += len(seqs) - partial
            seen["prompts_after_ahead"] += bool(fields) and len(runner.made) > 0
            seen["joined"] += not fields and len(runner.made) > 0  # decodes of sequences that come to those that ran ahead
            return launch(seqs, fields)

        waiting, outputs = list(requests), {}
        patches = (
            mock.patch.object(scheduler, "preempt", counted_preempt),
            mock.patch.object(scheduler.block_manager, "allocate", counted_allocate),
            mock.patch.object(runner, "launch", counted_launch),
        )
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            while waiting or not llm.is_finished():
                while waiting and (llm.is_finished() or numbers.random() < 0.2):
                    prompt, count = waiting.pop(0)
                    llm.add_request(prompt, SamplingParams(temperature=temperature, max_tokens=count, ignore_eos=ignore_eos))
                outputs.update(llm.step()[0])
        return [outputs[number] for number in sorted(outputs)], seen

    def requests(self, numbers, count=14):
        """Lengths around the ends of blocks, and prompts that begin alike."""
        shared = [numbers.randrange(2, 512) for _ in range(560)]
        lengths = [numbers.choice((1, 30, 245, 250, 254, 255, 256, 257, 300, 505, 511, 600)) for _ in range(count)]
        prompts = [[numbers.randrange(2, 512) for _ in range(length)] for length in lengths]
        for i in range(0, count, 3):
            prompts[i] = shared[: numbers.choice((256, 257, 512, 520))] + prompts[i][:20]
        return [(prompt, numbers.randint(1, 20)) for prompt in prompts]

    def check(self, requests, outputs):
        """Of all that can part two ways of computing a token, only nearly equal logits may."""
        for (prompt, count), output in zip(requests, outputs, strict=True):
            self.assertEqual(len(output), count)
            with torch.no_grad():
                logits = self.theirs(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1]
            taken = logits.gather(1, torch.tensor(output)[:, None])[:, 0]
            self.assertLess((logits.max(1).values - taken).max().item(), 0.02 * logits.abs().max().item(), len(prompt))

    def test_tokens_are_those_of_transformers(self):
        for fields in (dict(), dict(ahead=False), dict(enforce_eager=True)):
            total = collections.Counter()
            with self.engine(**fields) as llm:
                for seed in range(4):
                    with self.subTest(seed=seed, **fields):
                        numbers = random.Random(seed)
                        requests = self.requests(numbers)
                        outputs, seen = self.serve(llm, requests, numbers)
                        self.check(requests, outputs)
                        self.assertGreater(len(set(sum(outputs, []))), sum(map(len, outputs)) // 4)
                        self.assertEqual(seen.pop("tokens"), sum(map(len, outputs)), "a step made a token that no one wants")
                        total += seen
            happened = {"preempted", "cached", "chunks"}
            if fields.get("ahead", True):
                happened |= {"prompts_after_ahead", "joined"}
            self.assertEqual(set(total), happened, total)

    def test_tokens_end_with_the_end(self):
        """Of sequences some of which have run ahead into a token that no one wants."""
        numbers, closed_ahead = random.Random(5), []
        prompts = [prompt for prompt, _ in self.requests(numbers, 3)]
        requests = [(prompt, 20) for prompt in prompts * 4]
        with self.engine(cgr.HostSchedule.LATEST, enforce_eager=True) as llm:
            whole, _ = self.serve(llm, requests, random.Random(6))
            llm.scheduler.eos = whole[0][6]
            close = llm.model_runner.close
            llm.model_runner.close = lambda seq: (closed_ahead.append(seq.seq_id in llm.model_runner.made), close(seq))
            cut, _ = self.serve(llm, requests, random.Random(7), ignore_eos=False)
        self.assertIn(True, closed_ahead)
        for (prompt, _), output in zip(requests, cut):
            count = output.index(llm.scheduler.eos) + 1 if llm.scheduler.eos in output else 20
            self.check([(prompt, count)], [output])

    def test_samples_do_not_depend_on_running_ahead(self):
        requests, outputs = self.requests(random.Random(8)), []
        for ahead in (True, False):
            with self.engine(enforce_eager=True, ahead=ahead, seed=3) as llm:
                outputs += [self.serve(llm, requests, random.Random(9), temperature=0.9)[0]]
        with self.engine(enforce_eager=True, seed=4) as llm:
            outputs += [self.serve(llm, requests, random.Random(9), temperature=0.9)[0]]
        self.assertEqual(outputs[0], outputs[1])
        self.assertNotEqual(outputs[0], outputs[2])

    def test_more_sequences_than_a_step_holds(self):
        from nanovllm import SamplingParams

        numbers = random.Random(10)
        requests = [([numbers.randrange(2, 512) for _ in range(numbers.randint(1, 40))], 9) for _ in range(9)]
        with self.engine(enforce_eager=True, max_num_seqs=2, num_kvcache_blocks=20) as llm:
            for prompt, count in requests:
                llm.add_request(prompt, SamplingParams(temperature=1e-9, max_tokens=count, ignore_eos=True))
            outputs, most = {}, 0
            while not llm.is_finished():
                outputs.update(llm.step()[0])
                most = max(most, len(llm.model_runner.rows))
        self.assertGreater(most, 2)
        self.check(requests, [outputs[number] for number in sorted(outputs)])

    def test_what_it_does_not_serve_is_refused(self):
        with self.assertRaisesRegex(ValueError, "tensor_parallel_size is 2, expected 1"):
            self.adapter.LLM(self.folder.name, "host", tensor_parallel_size=2)
        with self.assertRaisesRegex(ValueError, "num_kvcache_blocks is not given"):
            self.adapter.LLM(self.folder.name, "host")

    def test_the_program_reports(self):
        text = io.StringIO()
        sizes = "--device host --blocks 20 --max-requests 2 --max-tokens 24 --requests 1 2 --prompt 5 --output 4 --repeat 1"
        with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(text):
            tokens = os.path.join(out, "tokens.json")
            for words in (f"--model {self.folder.name} {sizes} --tokens {tokens}", f"--compare {tokens} {tokens}"):
                with mock.patch.object(sys, "argv", ["main.py", *words.split()]):
                    main.main()
        expected = r"cgr +started in(.|\n)*20 blocks\ncgr +1 requests: .* tokens/s(.|\n)*not ahead +2 req(.|\n)*tokens: 18 of 18 "
        self.assertRegex(text.getvalue(), expected)


if __name__ == "__main__":
    unittest.main()
