"""examples/torch_engine/text.py: text in, text out, with a tokenizer of bytes."""

import contextlib
import importlib.util
import io
import json
import os
import sys
import tempfile
import unittest

from support import ROOT

sys.path.insert(0, os.path.join(ROOT, "examples/torch_engine"))
THERE = os.path.exists(os.path.join(ROOT, "examples/torch_engine/text.py"))
TOKENIZERS = THERE and importlib.util.find_spec("tokenizers") is not None
MODELS = TOKENIZERS and all(importlib.util.find_spec(name) for name in ("torch", "safetensors"))

if THERE:
    import text as example
if MODELS:
    import main
    import model
    import torch
    from test_torch import DEVICE

FIRST = 256  # the special token before each text
SIZES = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=96)
TEXTS = ["In the beginning", "a", "Grüße, 世界"]


def save_tokenizer(folder):
    """A token for each byte, in their order."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]  # as GPT-2 writes bytes: these as they are,
    others = [b for b in range(256) if b not in plain]  # and these from 256 on
    letters = {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", FIRST)])
    tokenizer.save(os.path.join(folder, "tokenizer.json"))


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name


@unittest.skipUnless(TOKENIZERS, "no tokenizers, or no examples/torch_engine")
class Texts(WithFolder):
    def setUp(self):
        super().setUp()
        save_tokenizer(self.folder)
        self.text = example.Text(self.folder)

    def test_a_prompt_is_the_tokenizer_s_tokens_and_comes_back_as_text(self):
        requests = list(self.text.requests(TEXTS, 5, 257))
        for tag, (request, text) in enumerate(zip(requests, TEXTS)):
            self.assertEqual((request.tag, request.tokens, request.end - request.prompt_len), (tag, [FIRST, *text.encode()], 5))
            self.assertEqual(self.text.of(request.tokens), text)
            request.tokens += [*"! ß".encode(), FIRST]
            self.assertEqual(self.text.shown(request), text + "|! ß")

    def test_a_tokenizer_of_another_model_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "--text 'a' has token 256, expected one below the model's 256"):
            list(self.text.requests(["a"], 5, 256))


@unittest.skipUnless(THERE, "no examples/torch_engine")
class Refusals(WithFolder):
    def test_a_folder_without_a_tokenizer_is_refused(self):
        with self.assertRaisesRegex(SystemExit, f"--text: no {self.folder}/tokenizer.json; expected --model to be a folder"):
            example.Text(self.folder)


@unittest.skipUnless(MODELS, "no torch, tokenizers and safetensors, or no examples/torch_engine")
class Program(WithFolder):
    def save_model(self):
        """Random weights, so large that tokens differ, under Hugging Face's names."""
        from safetensors.torch import save_file

        config = SIZES | dict(model_type="llama", vocab_size=257, rms_norm_eps=1e-5, tie_word_embeddings=True)
        with open(os.path.join(self.folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        torch.manual_seed(7)
        heads, hidden, inner = SIZES["head_dim"], SIZES["hidden_size"], SIZES["intermediate_size"]
        queries, keys = SIZES["num_attention_heads"] * heads, SIZES["num_key_value_heads"] * heads
        rows = {"self_attn.q_proj": (queries, hidden), "self_attn.k_proj": (keys, hidden), "self_attn.v_proj": (keys, hidden)}
        rows |= {"self_attn.o_proj": (hidden, queries), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden)}
        rows |= {"mlp.down_proj": (hidden, inner)}
        weights = {"model.embed_tokens.weight": torch.randn(257, hidden), "model.norm.weight": torch.ones(hidden)}
        for layer in range(SIZES["num_hidden_layers"]):
            for name, shape in rows.items():
                weights[f"model.layers.{layer}.{name}.weight"] = torch.randn(shape) * shape[1] ** -0.5
            for name in ("input_layernorm", "post_attention_layernorm"):
                weights[f"model.layers.{layer}.{name}.weight"] = torch.ones(hidden)
        save_file(weights, os.path.join(self.folder, "model.safetensors"))

    def greedy(self, tokens, count):
        """Without cache, pages or batches."""
        made = model.make_model(self.folder, 128, torch.device("cpu"), torch.float32)

        def attend(layer, q, k, v):
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(0, 1)

        tokens = list(tokens)
        for _ in range(count):
            ids = torch.tensor(tokens)
            tokens.append(int(made(ids, torch.arange(len(tokens)), torch.tensor([len(tokens) - 1]), attend)))
        return tokens

    def test_it_prints_prompts_and_what_the_model_says(self):
        save_tokenizer(self.folder)
        self.save_model()
        options = ["--device", DEVICE, "--model", self.folder, "--output", "12", "--max-len", "128", "--show", "3"]
        options += [word for text in TEXTS for word in ("--text", text)]
        for mode in ("eager", "cgr"):
            out, before = io.StringIO(), sys.argv
            sys.argv = ["main.py", "--mode", mode, *options]
            try:
                with contextlib.redirect_stdout(out):
                    main.main()
            finally:
                sys.argv = before
            for tag, text in enumerate(TEXTS):
                made = self.greedy([FIRST, *text.encode()], 12)[-12:]
                if DEVICE == "host":
                    said = bytes(token for token in made if token < FIRST).decode(errors="replace")
                    self.assertIn(f"request {tag}: {text}|{said}\n", out.getvalue(), mode)
                else:  # bf16 says something else
                    self.assertIn(f"request {tag}: {text}|", out.getvalue(), mode)


if __name__ == "__main__":
    unittest.main()
