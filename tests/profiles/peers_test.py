"""The programs that time other projects, as far as these need not be there: the file that llama.cpp reads, and how it is driven.

python3 -B tests/profiles/peers_test.py [-v] [Class]        from the project's root; Python 3.10 and nothing else
"""

import array
import importlib.util
import shlex
import statistics
import struct
import sys
import unittest
from unittest import mock

from common import PROFILES, Folder, run

sys.path.insert(0, str(PROFILES / "peers"))
import random_gguf  # noqa: E402

LLAMA_CPP = PROFILES / "peers" / "llama_cpp.py"


class Reader:
    """Of the format, version 3, as its specification has it: github.com/ggml-org/ggml, docs/gguf.md."""

    VALUES = {4: "<I", 6: "<f"}

    def __init__(self, path):
        self.data, self.at = path.read_bytes(), 0
        self.magic, self.version = self.data[:4], self.number("<4xI")
        num_tensors, num_values = self.number("<q"), self.number("<q")
        self.values = {self.text(): self.value() for _ in range(num_values)}
        self.tensors = {self.text(): self.tensor() for _ in range(num_tensors)}
        self.begin = -(-self.at // self.values["general.alignment"]) * self.values["general.alignment"]

    def number(self, form):
        (number,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return number

    def text(self):
        size = self.number("<Q")
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def value(self):
        kind = self.number("<i")
        return self.text() if kind == 8 else self.number(self.VALUES[kind])

    def tensor(self):
        dims = [self.number("<q") for _ in range(self.number("<I"))]
        return dims, self.number("<i"), self.number("<Q")

    def floats(self, name):
        dims, kind, offset = self.tensors[name]
        count, begin = dims[0] * (dims[1] if len(dims) > 1 else 1), self.begin + offset
        if kind == 0:
            return list(struct.unpack_from(f"<{count}f", self.data, begin))
        halves = array.array("H", self.data[begin : begin + 2 * count])
        return list(struct.unpack(f"={count}f", array.array("I", (half << 16 for half in halves)).tobytes()))


class Gguf(Folder):
    def written(self, name="tiny"):
        path = self.folder / "a b.gguf"
        self.assertEqual(random_gguf.write_model(path, name), path.stat().st_size)
        return Reader(path)

    def test_what_is_written_is_read_back(self):
        file = self.written()
        self.assertEqual((file.magic, file.version), (b"GGUF", 3))
        wanted = {"architecture": "llama", "name": "random tiny", "alignment": 32, "file_type": 32}
        self.assertEqual({k[8:]: v for k, v in file.values.items() if k.startswith("general.")}, wanted)
        self.assertEqual(file.values["tokenizer.ggml.model"], "no_vocab")
        for key, value in {"block_count": 2, "embedding_length": 256, "feed_forward_length": 512, "attention.head_count": 4,
                           "attention.head_count_kv": 2, "rope.dimension_count": 64, "vocab_size": 1024}.items():  # fmt: skip
            self.assertEqual(file.values[f"llama.{key}"], value, key)
        self.assertEqual(file.tensors["blk.1.attn_k.weight"][:2], ([256, 128], 30))
        self.assertEqual(file.tensors["blk.0.ffn_down.weight"][:2], ([512, 256], 30))
        end = 0
        for name, (dims, kind, offset) in file.tensors.items():
            self.assertEqual((offset, offset % 32), (end, 0), name)
            end = -(-(offset + len(file.floats(name)) * (4 if kind == 0 else 2)) // 32) * 32
        self.assertEqual(file.begin + end, len(file.data))

    def test_weights_are_normal_and_no_two_rows_are_the_same(self):
        file = self.written()
        weights = file.floats("token_embd.weight")
        self.assertAlmostEqual(statistics.fmean(weights), 0.0, delta=1e-3)
        self.assertAlmostEqual(statistics.pstdev(weights), 0.02, delta=1e-3)
        rows = [weights[i : i + 256] + weights[i : i + 1] for i in range(0, len(weights), 256)]
        self.assertEqual(len({tuple(row) for row in rows}), 1024)
        self.assertNotEqual(weights[: 256 * 128], file.floats("blk.0.attn_k.weight"))
        self.assertEqual(file.floats("blk.1.ffn_norm.weight"), [1.0] * 256)

    def test_shapes_are_those_of_the_models(self):
        # As their model cards have them: 1.24 B, whose embedding is its output matrix too, and 8.03 B.
        self.assertEqual([random_gguf.parameters_of(random_gguf.SHAPES[name]) for name in ("1b", "8b")], [1235814400, 8030261248])
        factors = list(random_gguf.rope_factors(random_gguf.SHAPES["8b"]))
        self.assertEqual((len(factors), factors[0], factors[-1], factors), (64, 1.0, 8.0, sorted(factors)))

    def test_a_model_that_does_not_fit_is_not_begun(self):
        with mock.patch("shutil.disk_usage", return_value=mock.Mock(free=10**10)), self.assertRaises(SystemExit) as refused:
            random_gguf.check_room("/some", "8b")
        self.assertEqual(str(refused.exception), "/some has 10.0 GB free, and the model 8b takes 16.1 GB: name a file elsewhere")


# In llama.cpp's place: what the program calls, of a model whose largest logit is that of the position of the last token.
FAKE = """
import ctypes, types
FAULT = {fault!r}
state = types.SimpleNamespace(last=0, sampled=False, lengths={{}})
class Batch:
    def __init__(self, size, *_):
        self.token, self.pos, self.n_seq_id, self.logits = ([0] * size for _ in range(4))
        self.seq_id = [[0] for _ in range(size)]
llama_log_callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def llama_log_set(callback, _): state.log = callback
def llama_version(): return b"1.2"
def llama_supports_gpu_offload(): return FAULT != "no GPU"
def llama_model_load_from_file(path, params):
    assert open(path, "rb").read(4) == b"GGUF"
    state.log(2, b"offloaded %d/3 layers to GPU" % (params.n_gpu_layers - (FAULT == "layers")), None)
    return 1
def llama_init_from_model(_, params):
    state.log(4, b"out of memory", None)
    return FAULT != "memory"
def llama_batch_init(size, *_): return Batch(size)
def llama_set_sampler(_, request, sampler):
    state.sampled = sampler is not None
    return FAULT != "sampler"
def llama_decode(_, batch):
    for i in range(batch.n_tokens):
        request = batch.seq_id[i][0]
        assert batch.pos[i] == state.lengths.get(request, 0), "a gap"
        state.lengths[request] = state.last = batch.pos[i] + 1
    return 3 if FAULT == "decode" else 0
def llama_memory_clear(*_): state.lengths.clear()
def llama_memory_seq_rm(_, request, begin, end): state.lengths[request] = begin
def llama_get_sampled_token_ith(_, i):
    assert state.sampled
    return -1 if FAULT == "token" else state.last
def llama_get_logits_ith(_, i):
    assert not state.sampled
    return [float(token == state.last) for token in range(1024)]
def __getattr__(name):
    if name.startswith("llama_") and not name.endswith("__"):
        return lambda *_: types.SimpleNamespace()
    raise AttributeError(name)
"""


class LlamaCpp(Folder):
    def with_fake(self, fault, *arguments):
        self.write("llama_cpp/__init__.py", "__version__, __commit__ = '0.3', 'abc'\n")
        self.write("llama_cpp/llama_cpp.py", FAKE.format(fault=fault))
        return run(sys.executable, "-B", LLAMA_CPP, "--build", self.folder, "--folder", self.folder, *arguments)

    def test_all_cases_have_their_rows(self):
        shown = self.with_fake("", "--requests", "1,8", "--depths", "16,128", "--steps", "3", "tiny")
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        lines = shown.stdout.splitlines()
        self.assertEqual(lines[0], "# llama.cpp 1.2 abc (llama-cpp-python 0.3)")
        self.assertEqual([line.split(":")[0] for line in lines[1:5]], ["# device", "# driver", "# commit", "# settings"])
        self.assertEqual(lines[5], "| model | params | dtype | mode | test | requests | ms per step | p99 | tokens/s |")
        modes = ("llama.cpp", "llama.cpp, logits")
        wanted = [(mode, test, requests) for requests in ("1", "8")
                  for mode, test in [(modes[0], "pp512"), *((m, f"tg3 @ {d}") for d in (16, 128) for m in modes)]]  # fmt: skip
        self.assertEqual([tuple(line.split(" | ")[3:6]) for line in lines[7:]], wanted)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["llama_cpp"])  # the model is gone

    def test_what_fails_is_skipped_with_its_reason(self):
        for fault, why in (
            ("layers", "tiny: 2 of 3 layers are on the GPU, expected all"),
            ("memory", "tiny, 8 requests: llama.cpp cannot make a context with 0.0 GB of K and V: out of memory"),
            ("sampler", "tiny, 8 requests: llama.cpp does not sample on this device: out of memory"),
            ("decode", "tiny, 8 requests: llama_decode returned 3: out of memory"),
            ("token", "tiny, 8 requests: token -1 is sampled for request 0, expected 17 with the largest logit"),
        ):
            shown = self.with_fake(fault, "--requests", "8", "--depths", "16", "--steps", "1", "tiny")
            self.assertEqual((shown.returncode, shown.stderr), (0, ""), fault)
            self.assertIn(f"# skipped: {why}", shown.stdout.splitlines())

    def test_a_row_has_the_median_and_the_p99(self):
        spec = importlib.util.spec_from_file_location("peer", LLAMA_CPP)
        peer = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(peer)
        times = [6.6] * 98 + [6.71, 9.0]
        row = "| 8b (random) | 8.03 B | bf16 | llama.cpp | tg128 @ 128 | 1 | 6.60 | 6.71 | 151.5 |"
        self.assertEqual(peer.row_of("8b", "llama.cpp", "tg128 @ 128", 1, times, 1), row)
        self.assertIn(" | 25.10 | 25.10 | 20398 |", peer.row_of("8b", "llama.cpp", "pp512", 1, [25.1], 512))

    def test_bad_options_are_refused(self):
        for arguments, why in (
            (["7b"], "invalid choice: '7b'"),
            (["--requests", "1,x", "tiny"], "'1,x', expected whole numbers above 0"),
            (["--depths", "0", "tiny"], "'0', expected whole numbers above 0"),
            (["--steps", "0", "tiny"], "--steps: 0, expected 1 or more"),
            (["--build", self.folder / "none", "--folder", self.folder, "tiny"], "build them with profiles/peers/llama_cpp.sh"),
        ):
            refused = run(sys.executable, "-B", LLAMA_CPP, *arguments)
            self.assertNotEqual(refused.returncode, 0, arguments)
            self.assertIn(why, refused.stderr)
        self.assertIn("finds no GPU: build it without --cpu", self.with_fake("no GPU", "tiny").stderr)

    def test_the_build_is_for_the_gpu_unless_told(self):
        self.write("pack/llama_cpp/llama_cpp.py", "")
        for tool in ("cmake", "nvcc"):
            self.write(f"bin/{tool}", f"#!/bin/bash\necho {tool} \"$@\" >> {shlex.quote(str(self.folder / 'log'))}\n").chmod(0o755)
        self.write("out/build/bin/libllama.so", "")
        environment = {"PATH": f"{self.folder}/bin:/usr/bin:/bin"}
        for options, flags in (
            (["--jobs", "3"], ["-DGGML_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=90"]),
            (["--cpu", "--arch", "100"], ["-DGGML_CUDA=OFF", "-DCMAKE_CUDA_ARCHITECTURES=100"]),
        ):
            built = run(PROFILES / "peers/llama_cpp.sh", "build", self.folder / "pack", self.folder / "out", *options, env=environment)
            self.assertEqual((built.returncode, built.stderr), (0, ""))
            for flag in flags:
                self.assertIn(flag, (self.folder / "log").read_text(encoding="utf-8").split())
            (self.folder / "log").unlink()
        self.assertTrue((self.folder / "out/llama_cpp/lib/libllama.so").is_file())
        for arguments, why in (
            ([], "the first word is missing, expected pack or build"),
            (["pack"], "pack takes one name"),
            (["build", "x"], "build takes two names"),
            (["build", self.folder / "no", "y"], f"there is no {self.folder}/no"),
            (["build", self.folder / "bin", self.folder / "y"], "is not what `pack` writes"),
            (["--jobs", "0"], "--jobs is 0, expected a whole number above 0"),
            (["--fast"], "unknown option --fast"),
        ):
            refused = run(PROFILES / "peers/llama_cpp.sh", *arguments)
            self.assertEqual(refused.returncode, 2, arguments)
            self.assertIn(why, refused.stderr)


if __name__ == "__main__":
    unittest.main()
