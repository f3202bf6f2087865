"""Caches of 8 bits under a model in torch: replays give the tokens of eager steps, and most tokens are those of a cache in fp32."""

import os
import unittest

from support import ROOT

import cgr

try:
    import torch
    import torch_minimal as minimal

    import cgr.torch
except ImportError:
    torch = None
if torch is not None:
    from torch_minimal import DIM, HEADS, KV_HEADS, PAGE, PAGES


# begin: docs/torch.md
def layer_of_e4m3(pages, factors, dtype):
    """pages: float8_e4m3fn [PAGES, 2, PAGE, KV_HEADS, DIM]; factors: float32 [2, KV_HEADS], the largest magnitudes / 448."""
    k, v = cgr.kv_view_make_pair(cgr.KvLayout.NHD, pages, cgr.Dtype.FP8_E4M3, PAGE, KV_HEADS, DIM)
    k.scale, k.scale_stride_head = factors[0], 1
    v.scale, v.scale_stride_head = factors[1], 1
    return cgr.Layer(num_q_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=DIM, k=k, v=v, dtype=cgr.torch.dtype_of(dtype))


def layer_of_i8(pages, k_factors, v_factors, dtype):
    """pages: int8; k_factors: float32 [PAGES, KV_HEADS, PAGE], zeros, which the append writes; v_factors: [KV_HEADS, DIM]."""
    k, v = cgr.kv_view_make_pair(cgr.KvLayout.NHD, pages, cgr.Dtype.I8, PAGE, KV_HEADS, DIM)
    k.scale, k.scale_stride_page, k.scale_stride_head, k.scale_stride_token = k_factors, KV_HEADS * PAGE, PAGE, 1
    v.scale, v.scale_stride_head, v.scale_stride_d = v_factors, DIM, 1
    return cgr.Layer(num_q_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=DIM, k=k, v=v, dtype=cgr.torch.dtype_of(dtype))


# end


class Engine(minimal.Engine if torch is not None else object):
    """torch_minimal's on the host, over another cache."""

    def __init__(self, kind, mode):
        torch.manual_seed(7)
        self.device = cgr.Device("host", layer=True)
        self.stream = self.device.stream()
        self.model = minimal.Model()
        record = cgr.torch.Record(self.device, self.model)
        cache = {"e4m3": torch.float8_e4m3fn, "i8": torch.int8, "fp32": torch.float32}[kind]
        self.cache = torch.zeros(minimal.LAYERS, PAGES, 2, PAGE, KV_HEADS, DIM).to(cache)
        self.k_factors = torch.zeros(minimal.LAYERS, PAGES, KV_HEADS, PAGE)
        layers = [self.layer(kind, i) for i in range(minimal.LAYERS)]
        limits = dict(max_requests=minimal.REQUESTS, max_tokens=minimal.TOKENS, max_seq_len=minimal.LENGTH, graph_mode=mode)
        self.runtime = cgr.Runtime(device=self.device, groups=[cgr.Group(num_pages=PAGES)], layers=layers, **limits)
        self.free = list(range(2, PAGES))
        record.capture(self.runtime)

    def layer(self, kind, i):
        pages = self.cache[i]
        if kind == "e4m3":
            return layer_of_e4m3(pages, torch.full((2, KV_HEADS), 8 / 448), torch.float32)
        if kind == "i8":
            return layer_of_i8(pages, self.k_factors[i], torch.full((KV_HEADS, DIM), 8 / 127), torch.float32)
        k, v = cgr.kv_view_make_pair(cgr.KvLayout.NHD, pages, cgr.Dtype.FP32, PAGE, KV_HEADS, DIM)
        return cgr.Layer(num_q_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=DIM, k=k, v=v)

    def close(self):
        self.runtime.close()
        self.stream.close()
        self.device.close()


@unittest.skipIf(torch is None, "no torch")
class Caches(unittest.TestCase):
    def tokens(self, kind, mode):
        engine = Engine(kind, mode)
        self.addCleanup(engine.close)
        return engine.generate([[1, 2, 3], [4, 5], [6] * 20], count=12)

    def test_replays_are_eager_steps(self):
        plain = self.tokens("fp32", cgr.GraphMode.NONE)
        for kind in ("e4m3", "i8"):
            wanted = self.tokens(kind, cgr.GraphMode.NONE)
            self.assertEqual(self.tokens(kind, cgr.GraphMode.FULL), wanted, kind)
            same = sum(a == b for x, y in zip(wanted, plain) for a, b in zip(x, y))
            self.assertGreater(same, 36 // 2, kind)

    def test_the_guide_has_these_lines(self):
        with open(os.path.join(ROOT, "docs/torch.md"), encoding="utf-8") as file:
            page = file.read()
        with open(__file__, encoding="utf-8") as file:
            mine = file.read().split("# begin: docs/torch.md\n")[1].split("\n\n\n# end")[0]
        self.assertIn(f"```python\n{mine}\n```", page)


if __name__ == "__main__":
    unittest.main()
