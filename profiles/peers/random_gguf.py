"""Writes a model of random bf16 weights in llama.cpp's file format: the tensors of Llama 3.2 1B, Llama 3.1 8B or a tiny model.

    python3 profiles/peers/random_gguf.py 1b|8b|tiny MODEL.gguf

Format: github.com/ggml-org/ggml, docs/gguf.md, version 3; names of tensors: gguf-py/gguf/constants.py in llama.cpp. There is no
tokenizer ("no_vocab"): programs give token ids. Weights are normal with deviation 0.02, norms are 1. A block of a prime number of values
is written over and over, so that no two rows of a matrix are the same. Needs Python 3.10 and nothing else.
"""

import argparse
import array
import collections
import math
import os
import random
import shutil
import struct
import sys

Shape = collections.namedtuple("Shape", "layers hidden heads kv_heads head_dim ffn vocab tied rope_factor", defaults=[None])
SHAPES = {
    "1b": Shape(16, 2048, 32, 8, 64, 8192, 128256, True, 32.0),
    "8b": Shape(32, 4096, 32, 8, 128, 14336, 128256, False, 8.0),
    "tiny": Shape(2, 256, 4, 2, 64, 512, 1024, False),
}
ROPE_THETA, CONTEXT, ORIGINAL_CONTEXT = 500000.0, 131072, 8192
ALIGNMENT, BLOCK_VALUES, DEVIATION = 32, 1048573, 0.02

UINT32, FLOAT32, STRING = 4, 6, 8  # types of metadata
F32, BF16 = 0, 30  # types of tensors
BYTES = {F32: 4, BF16: 2}

Tensor = collections.namedtuple("Tensor", "name dims type")  # the dimension that is contiguous first, as in the file


def tensors_of(shape):
    """In the order of the file."""
    q, kv, embedding = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, (shape.hidden, shape.vocab)
    yield Tensor("token_embd.weight", embedding, BF16)
    yield Tensor("output_norm.weight", (shape.hidden,), F32)
    if not shape.tied:
        yield Tensor("output.weight", embedding, BF16)
    if shape.rope_factor:
        yield Tensor("rope_freqs.weight", (shape.head_dim // 2,), F32)
    for layer in range(shape.layers):
        for name, dims in (
            ("attn_norm", (shape.hidden,)),
            ("attn_q", (shape.hidden, q)),
            ("attn_k", (shape.hidden, kv)),
            ("attn_v", (shape.hidden, kv)),
            ("attn_output", (q, shape.hidden)),
            ("ffn_norm", (shape.hidden,)),
            ("ffn_gate", (shape.hidden, shape.ffn)),
            ("ffn_up", (shape.hidden, shape.ffn)),
            ("ffn_down", (shape.ffn, shape.hidden)),
        ):
            yield Tensor(f"blk.{layer}.{name}.weight", dims, BF16 if len(dims) == 2 else F32)


def bytes_of(tensor):
    return math.prod(tensor.dims) * BYTES[tensor.type]


def aligned(offset):
    return -(-offset // ALIGNMENT) * ALIGNMENT


def parameters_of(shape):
    return sum(math.prod(t.dims) for t in tensors_of(shape) if t.name != "rope_freqs.weight")


def metadata_of(name, shape):
    yield "general.architecture", STRING, "llama"
    yield "general.name", STRING, f"random {name}"
    yield "general.alignment", UINT32, ALIGNMENT
    yield "general.file_type", UINT32, 32  # mostly bf16
    for key, value in (
        ("block_count", shape.layers),
        ("context_length", CONTEXT),
        ("embedding_length", shape.hidden),
        ("feed_forward_length", shape.ffn),
        ("attention.head_count", shape.heads),
        ("attention.head_count_kv", shape.kv_heads),
        ("attention.key_length", shape.head_dim),
        ("attention.value_length", shape.head_dim),
        ("rope.dimension_count", shape.head_dim),
        ("vocab_size", shape.vocab),
    ):
        yield f"llama.{key}", UINT32, value
    yield "llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5
    yield "llama.rope.freq_base", FLOAT32, ROPE_THETA
    yield "tokenizer.ggml.model", STRING, "no_vocab"


def text_bytes(text):
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def value_bytes(kind, value):
    packed = text_bytes(value) if kind == STRING else struct.pack({UINT32: "<I", FLOAT32: "<f"}[kind], value)
    return struct.pack("<i", kind) + packed


def header_of(name, shape):
    """All that comes before the tensors' values, padding included."""
    tensors, metadata = list(tensors_of(shape)), list(metadata_of(name, shape))
    header, offset = b"GGUF" + struct.pack("<Iqq", 3, len(tensors), len(metadata)), 0
    header += b"".join(text_bytes(key) + value_bytes(kind, value) for key, kind, value in metadata)
    for tensor in tensors:
        dims = struct.pack(f"<I{len(tensor.dims)}q", len(tensor.dims), *tensor.dims)
        header += text_bytes(tensor.name) + dims + struct.pack("<iQ", tensor.type, offset)
        offset = aligned(offset + bytes_of(tensor))
    return header.ljust(aligned(len(header)), b"\0")


def random_block(count, seed):
    """Normal values in bf16: the upper halves of floats, which leaves out the rounding."""
    generator = random.Random(seed)
    singles = array.array("f", (generator.gauss(0.0, DEVIATION) for _ in range(count)))
    if sys.byteorder != "little":
        singles.byteswap()
    raw, block = singles.tobytes(), bytearray(2 * count)
    block[0::2], block[1::2] = raw[2::4], raw[3::4]
    return bytes(block)


def rope_factors(shape):
    """What each frequency is divided by: the scaling "llama3" of transformers, modeling_rope_utils.py, with its factors 1 and 4."""
    for i in range(shape.head_dim // 2):
        turns = ORIGINAL_CONTEXT * ROPE_THETA ** (-2.0 * i / shape.head_dim) / (2.0 * math.pi)
        smooth = min(max((turns - 1.0) / 3.0, 0.0), 1.0)
        yield 1.0 / ((1.0 - smooth) / shape.rope_factor + smooth)


def write_repeated(file, block, begin, size):
    """`size` bytes of the block repeated, from byte `begin` of it; returns where the next ones begin."""
    while size > 0:
        piece = memoryview(block)[begin : begin + size]
        file.write(piece)
        begin, size = (begin + len(piece)) % len(block), size - len(piece)
    return begin


def write_model(path, name, seed=0):
    """Returns the bytes of the file."""
    shape, begin = SHAPES[name], 0
    block = random_block(BLOCK_VALUES, seed)
    with open(path, "wb") as file:
        file.write(header_of(name, shape))
        for tensor in tensors_of(shape):
            if tensor.type == BF16:
                begin = write_repeated(file, block, begin, bytes_of(tensor))
            else:
                values = rope_factors(shape) if tensor.name == "rope_freqs.weight" else [1.0] * tensor.dims[0]
                file.write(struct.pack(f"<{tensor.dims[0]}f", *values))
            file.write(bytes(-file.tell() % ALIGNMENT))
        return file.tell()


def check_room(folder, name):
    """Ends the program if the model does not fit."""
    needed, free = sum(aligned(bytes_of(t)) for t in tensors_of(SHAPES[name])), shutil.disk_usage(folder).free
    if needed > free:
        sys.exit(f"{folder} has {free / 1e9:.1f} GB free, and the model {name} takes {needed / 1e9:.1f} GB: name a file elsewhere")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("path", metavar="MODEL.gguf")
    options = parser.parse_args()
    check_room(os.path.dirname(os.path.abspath(options.path)), options.shape)
    size = write_model(options.path, options.shape)
    print(f"{options.path}: {parameters_of(SHAPES[options.shape]) / 1e9:.2f} B parameters, {size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
