"""Sampling inside a graph: torch's random numbers are refused there, so noise is a hash of what differs from token to token."""

import torch

_MASK = 0xFFFFFFFF
SAMPLED = (torch.float32, torch.int32, torch.int32)  # of temperatures, seeds and positions


@torch.compile
def sample(logits, temperatures, seeds, positions):
    """Tokens with the probabilities softmax(logits / temperature). The noise of a token is a hash of seed, position and token."""
    h = mix(seeds.long() & _MASK) + positions.long()
    h = mix(h & _MASK)[:, None] + torch.arange(logits.shape[1], device=logits.device)
    return (logits.float() / temperatures[:, None] + gumbel(mix(mix(h & _MASK)))).argmax(-1)


def gumbel(h):
    """Of 32 random bits, of which 23 are taken: more would round to 1, whose noise is infinite."""
    return -torch.log(-torch.log(((h >> 9).float() + 0.5) * 2.0**-23))


def mix(h):
    """32 bits of an int64, each of which depends on all (MurmurHash3's last steps)."""
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & _MASK
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & _MASK
    return h ^ (h >> 16)
