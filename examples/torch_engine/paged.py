"""Attention over pages in plain torch, as a function attend(layer, q, k, v) of one step. `cache` is [layers, 2, pages, page_size,
kv_heads, head_dim]; the step's tokens are decodes first, then chunks, one after the other."""

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa


def append(cache, layer, slots, k, v):
    for part, new in zip(cache[layer], (k, v)):
        part.flatten(0, 1).index_copy_(0, slots, new)


def decode(cache, slots, seq_lens, table):
    """One token each: slots and seq_lens [requests], table [requests, pages]. Pages are gathered up to the table's width. Query
    heads that share a KV head are queries of it, which lets torch take its fast kernels."""
    width = table.shape[1] * cache.shape[3]
    mask = torch.zeros(len(table), 1, 1, width, dtype=cache.dtype, device=table.device)
    mask.masked_fill_(torch.arange(width, device=table.device) >= seq_lens[:, None, None, None], float("-inf"))

    def attend(layer, q, k, v):
        append(cache, layer, slots, k, v)
        keys, values = (part[table].flatten(1, 2).transpose(1, 2) for part in cache[layer])
        shared = q.reshape(q.shape[0], k.shape[1], -1, q.shape[2])
        return sdpa(shared, keys, values, mask.expand(-1, -1, shared.shape[2], -1)).reshape(q.shape)

    return attend


def mixed(cache, slots, seq_lens, table, lengths):
    """Decodes, then chunks, whose numbers of tokens, before and after the step, are `lengths`."""
    n, counts = len(table) - len(lengths), [after - before for before, after in lengths]
    decodes = decode(cache, slots[:n], seq_lens[:n], table[:n])

    def attend(layer, q, k, v):
        append(cache, layer, slots[n:], k[n:], v[n:])
        out = [decodes(layer, q[:n], k[:n], v[:n])] if n > 0 else []
        return torch.cat(out + [one(layer, i, part) for i, part in enumerate(q[n:].split(counts))])

    def one(layer, i, q):
        before, after = lengths[i]
        pages = table[n + i, : -(-after // cache.shape[3])]
        keys, values = (part[pages].flatten(0, 1)[:after].transpose(0, 1)[None] for part in cache[layer])
        mask = torch.ones(after - before, after, dtype=torch.bool, device=q.device).tril(before)
        return sdpa(q.transpose(0, 1)[None], keys, values, mask, enable_gqa=True)[0].transpose(0, 1)

    return attend
