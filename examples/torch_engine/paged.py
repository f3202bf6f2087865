"""Attention over pages in plain torch, as a function attend(layer, q, k, v) of one step. `cache` is [layers, 2, pages, page_size,
kv_heads, head_dim]."""

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa


def append(cache, layer, slots, k, v):
    for part, new in zip(cache[layer], (k, v)):
        part.flatten(0, 1).index_copy_(0, slots, new)


def decode(cache, slots, seq_lens, table):
    """One token each: slots and seq_lens [requests], table [requests, pages]. Pages are gathered up to the table's width."""
    width = table.shape[1] * cache.shape[3]
    mask = torch.arange(width, device=table.device) < seq_lens[:, None]

    def attend(layer, q, k, v):
        append(cache, layer, slots, k, v)
        keys, values = (part[table].flatten(1, 2).transpose(1, 2) for part in cache[layer])
        return sdpa(q[:, :, None], keys, values, mask[:, None, None], enable_gqa=True)[:, :, 0]

    return attend


def mixed(cache, slots, query_lens, seq_lens, table):
    """Any numbers of tokens, one request after the other; the lengths are lists."""

    def attend(layer, q, k, v):
        append(cache, layer, slots, k, v)
        return torch.cat([one(layer, i, part) for i, part in enumerate(q.split(query_lens))])

    def one(layer, i, q):
        count, length = query_lens[i], seq_lens[i]
        pages = table[i, : -(-length // cache.shape[3])]
        keys, values = (part[pages].flatten(0, 1)[:length].transpose(0, 1)[None] for part in cache[layer])
        mask = torch.ones(count, length, dtype=torch.bool, device=q.device).tril(length - count)
        return sdpa(q.transpose(0, 1)[None], keys, values, mask, enable_gqa=True)[0].transpose(0, 1)

    return attend
