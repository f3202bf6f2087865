"""Steps of nano-vllm by cgr: LLM is nanovllm.LLM with another model runner and rows that follow its block manager. See README.md.

    llm = cgr_nano_vllm.LLM(folder, max_model_len=4096)   # all else as nano-vllm has it
    llm.generate(prompts, SamplingParams(temperature=0.6))

Its scheduler, block manager, model, weights and sampling parameters are used as they are. Replaced are the runner's preparation
of prompts and decodes, its CUDA graphs, its attention, and the sampler, whose random numbers come from a hash inside the graph.
"""

import contextlib
import importlib.util
import sys
import types

import numpy as np
import torch
import torch.distributed as dist

import cgr
import cgr.torch
from sampling import SAMPLED, sample

WITHOUT_FLASH = importlib.util.find_spec("flash_attn") is None
if WITHOUT_FLASH:  # nano-vllm imports these two; here nothing calls them
    sys.modules["flash_attn"] = types.ModuleType("flash_attn")
    sys.modules["flash_attn"].flash_attn_varlen_func = sys.modules["flash_attn"].flash_attn_with_kvcache = None

from nanovllm.engine import llm_engine
from nanovllm.engine.block_manager import BlockManager
from nanovllm.models.qwen3 import Qwen3ForCausalLM
from nanovllm.utils.context import reset_context, set_context
from nanovllm.utils.loader import load_model

if WITHOUT_FLASH:
    del sys.modules["flash_attn"]

TEMPERATURE, SEED = 0, 1  # places among the runtime's declared buffers
TRASH = 2  # pages behind those of the block manager: one that is read and one that is written in place of none


class LLM(llm_engine.LLMEngine):
    """`device` is cuda:N, host or a cgr.Device. On the host, and to have fewer than fit, num_kvcache_blocks says how many blocks
    there are. With `ahead`, decodes are launched before the tokens of the step before have been read.
    """

    def __init__(self, model, device="cuda:0", seed=0, ahead=True, **fields):
        if fields.get("tensor_parallel_size", 1) != 1:
            raise ValueError(f"tensor_parallel_size is {fields['tensor_parallel_size']}, expected 1")
        theirs = llm_engine.ModelRunner
        llm_engine.ModelRunner = lambda config, _rank, _event: Runner(config, device, seed, ahead)
        try:
            super().__init__(model, **fields)
        finally:
            llm_engine.ModelRunner = theirs
        manager = self.scheduler.block_manager
        self.scheduler.block_manager = Blocks(self.model_runner, len(manager.blocks), manager.block_size)


class Blocks(BlockManager):
    """Tells the runtime what changes in block tables. Rows live as long as a sequence has blocks."""

    def __init__(self, runner, num_blocks, block_size):
        super().__init__(num_blocks, block_size)
        self.runner = runner

    def allocate(self, seq, num_cached_blocks):
        super().allocate(seq, num_cached_blocks)
        self.runner.open(seq)

    def may_append(self, seq):
        if len(seq) % self.block_size == 1:
            super().may_append(seq)
            self.runner.append(seq)

    def deallocate(self, seq):
        self.runner.close(seq)
        super().deallocate(seq)


class PassThrough(torch.nn.Module):
    """In place of attention while memory is measured."""

    def forward(self, q, k, v):
        return q


class Launched:
    """A step and, once they have been read, its tokens."""

    def __init__(self, step):
        self.step, self.read = step, None

    def tokens(self):
        if self.read is None:
            self.read = self.step.wait().tokens.tolist()
        return self.read


class Runner:
    """What LLMEngine asks of its model runner: call("run", seqs, is_prefill) and call("exit")."""

    def __init__(self, config, device, seed, ahead):
        self.config, self.seeds, self.ahead = config, np.random.default_rng(seed), ahead
        self.device = cgr.Device(device) if isinstance(device, str) else device
        self.record = cgr.torch.Record(self.device, self.forward)
        self.place = self.record.torch_device
        self.rows = {}  # of sequences that have blocks, by their number
        self.made = {}  # a step that makes the next token, and its place there, of sequences that have run ahead
        if self.record.on_host:
            self.stream = self.device.stream()
        else:
            torch.cuda.set_device(self.place)
            self.stream = torch.cuda.Stream(self.place)
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # its layers ask for rank and size
        self.model = self.make_model()
        if config.num_kvcache_blocks <= 0:
            config.num_kvcache_blocks = self.count_blocks()
        self.runtime = self.make_runtime()
        self.record.capture(self.runtime)

    def call(self, name, *arguments):
        return getattr(self, name)(*arguments)

    def exit(self):
        self.runtime.close()
        dist.destroy_process_group()

    # -------------------------------------------------------------------------------------------------- model and memory

    def make_model(self):
        hf, before = self.config.hf_config, torch.get_default_dtype()
        torch.set_default_dtype(hf.dtype)
        try:
            with self.place:
                model = Qwen3ForCausalLM(hf)
                load_model(model, self.config.model)
        finally:
            torch.set_default_dtype(before)
        for layer in model.model.layers:
            layer.self_attn.attn = PassThrough()
        return model.requires_grad_(False)

    def block_shape(self):
        hf = self.config.hf_config
        head_dim = getattr(hf, "head_dim", None) or hf.hidden_size // hf.num_attention_heads
        return self.config.kvcache_block_size, hf.num_key_value_heads, head_dim

    @torch.no_grad()
    def count_blocks(self):
        """Of what the configuration grants, less the weights and what a step of the most tokens takes."""
        if self.record.on_host:
            raise ValueError("num_kvcache_blocks is not given, which the host device needs")
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        ids = torch.zeros(self.config.max_num_batched_tokens, dtype=torch.int32, device=self.place)
        hidden = self.model(ids, ids)[: self.config.max_num_seqs]
        sample(self.model.compute_logits(hidden), *(torch.ones(len(hidden), device=self.place, dtype=d) for d in SAMPLED))
        taken = torch.cuda.max_memory_allocated() - before
        del ids, hidden
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        hf = self.config.hf_config
        block = 2 * hf.num_hidden_layers * int(np.prod(self.block_shape())) * hf.dtype.itemsize
        blocks = int(total * self.config.gpu_memory_utilization - (total - free) - taken) // block - TRASH
        if blocks < 1:
            raise MemoryError(f"no memory for a block of {block} bytes: {free} bytes are free, a step takes {taken}")
        return blocks

    def make_runtime(self):
        config, (size, kv_heads, head_dim) = self.config, self.block_shape()
        hf, blocks = config.hf_config, config.num_kvcache_blocks
        shape = (2, hf.num_hidden_layers, blocks + TRASH, size, kv_heads, head_dim)
        self.cache = torch.empty(shape, dtype=hf.dtype, device=self.place)
        self.cache[:, :, blocks:] = 0
        layers, dtype = [], cgr.torch.dtype_of(hf.dtype)
        for i, layer in enumerate(self.model.model.layers):
            layer.self_attn.attn = cgr.torch.Attention(i)
            k, v = (cgr.kv_view_make(cgr.KvLayout.NHD, part[i], dtype, size, kv_heads, head_dim) for part in self.cache)
            fields = dict(k=k, v=v, scale=layer.self_attn.scaling)
            layers.append(cgr.Layer(num_q_heads=hf.num_attention_heads, num_kv_heads=kv_heads, head_dim=head_dim, **fields))
        most = min(config.max_num_seqs, config.max_num_batched_tokens)
        rows = dict(dimension=cgr.Dimension.ROWS, source=cgr.Source.STAGED)
        return cgr.Runtime(
            device=self.device,
            groups=[cgr.Group(num_pages=blocks + TRASH, page_size=size, read_trash_page=blocks, write_trash_page=blocks + 1)],
            layers=layers,
            buffers=[
                cgr.BufferDecl(name="temperature", dtype=cgr.Dtype.FP32, padding=1, **rows),
                cgr.BufferDecl(name="seed", dtype=cgr.Dtype.I32, **rows),
            ],
            max_requests=most,
            max_rows=max(most, blocks),  # its scheduler may have more running than run in a step; each has a block of its own
            max_tokens=config.max_num_batched_tokens,
            max_seq_len=min(config.max_model_len, blocks * size),
            graph_mode=cgr.GraphMode.NONE if config.enforce_eager else cgr.GraphMode.DEFAULT,
        )

    def forward(self, step):
        stance = torch.compiler.set_stance("force_eager") if self.record.on_host else contextlib.nullcontext()
        with stance:
            set_context(False)  # attention and the head's choice of tokens are not theirs
            hidden = self.model(step.input_ids, step.positions).index_select(0, step.logits_indices)
            rows = step.buffer(cgr.Buffer.REQUEST_ROWS)
            temperatures, seeds = (step.buffer(cgr.Buffer.DECLARED, i).view(-1)[rows] for i in (TEMPERATURE, SEED))
            positions = step.positions[step.logits_indices]
            step.next_tokens.copy_(sample(self.model.compute_logits(hidden), temperatures, seeds, positions))
            reset_context()

    # ------------------------------------------------------------------------------------------------- rows and their pages

    def open(self, seq):
        row = self.rows[seq.seq_id] = self.runtime.request_open(seq.seq_id)
        self.runtime.request_set_pages(row, group=0, first=0, pages=seq.block_table)
        if seq.num_cached_tokens > 0:
            self.runtime.request_set_length(row, seq.num_cached_tokens)
        self.runtime.request_set_data(row, TEMPERATURE, np.float32([seq.temperature]))
        self.runtime.request_set_data(row, SEED, self.seeds.integers(1 << 31, size=1, dtype=np.int32))

    def append(self, seq):
        first = len(seq.block_table) - 1
        self.runtime.request_set_pages(self.rows[seq.seq_id], group=0, first=first, pages=seq.block_table[first:])

    def close(self, seq):
        if seq.seq_id in self.made:  # its blocks are free when no step uses them
            self.made.pop(seq.seq_id)[0].tokens()
        self.runtime.request_close(self.rows.pop(seq.seq_id))

    # ---------------------------------------------------------------------------------------------------------------- steps

    def run(self, seqs, is_prefill):
        """The tokens of these sequences. Before it waits for those of decodes, it launches the decodes that will follow."""
        if is_prefill:
            launched = self.launch(seqs, self.chunks(seqs))
            for step, _ in self.made.values():  # results last for a few steps only
                step.tokens()
            return launched.tokens()
        missing = [seq for seq in seqs if seq.seq_id not in self.made]
        if missing:  # of the others the step has run ahead
            self.note(self.launch(missing), missing)
        made = [self.made.pop(seq.seq_id) for seq in seqs]
        following = self.following(seqs) if self.ahead else []
        if following:
            self.note(self.launch(following), following)
        return [step.tokens()[place] for step, place in made]

    def note(self, step, seqs):
        self.made.update((seq.seq_id, (step, place)) for place, seq in enumerate(seqs))

    def following(self, seqs):
        """Those that go on after the step under way, whatever its tokens are but the end; none if one of them needs a block."""
        going = [seq for seq in seqs if seq.num_tokens - seq.num_prompt_tokens + 1 < seq.max_tokens]
        size, most = self.config.kvcache_block_size, self.config.max_model_len
        return going if all(seq.num_tokens < min(len(seq.block_table) * size, most) for seq in going) else []

    def chunks(self, seqs):
        tokens, flags = [], []
        for seq in seqs:
            end = seq.num_cached_tokens + seq.num_scheduled_tokens
            tokens += seq[seq.num_cached_tokens : end]
            flags.append(cgr.RequestFlag.PARTIAL if end < seq.num_tokens else 0)
        return dict(query_lens=[seq.num_scheduled_tokens for seq in seqs], tokens=tokens, flags=flags)

    def launch(self, seqs, fields={}):
        """Without fields: decodes, the last token of each of which is on the device."""
        batch = cgr.Batch(rows=[self.rows[seq.seq_id] for seq in seqs], **fields)
        step = self.runtime.prepare_wait(batch, self.stream)
        step.launch(self.stream)
        return Launched(step)
