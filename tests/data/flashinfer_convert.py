"""Turns records of FlashInfer's planners, JSON lines, into the format of flashinfer.txt.

    python3 flashinfer_convert.py decode.jsonl prefill.jsonl > flashinfer.txt

A record has every argument of DecodePlan or PrefillPlan, and what the call left: plan_info, the bytes of both workspaces, and the
words of the int workspace, which was full of 0x5a before. A line of the output is

    decode|prefill numbers ; qo_indptr ; kv_indptr ; plan_info ; int bytes, float bytes ; words

with numbers as in DECODE and PREFILL below, v*n for n equal numbers, a+n for n numbers that grow by 1 from a, and x for a word that
was not written; a plan that FlashInfer refuses has nothing after kv_indptr. Words are those of whole bytes: the last may be cut.
"""
import json
import sys

DECODE = "batch_size num_qo_heads num_kv_heads head_dim page_size num_sm num_blocks_per_sm enable_cuda_graph".split()
PREFILL = (
    "batch_size total_num_rows num_qo_heads num_kv_heads head_dim_qk head_dim_vo page_size kv_dtype_bytes window_left "
    "fixed_split_size disable_split_kv num_colocated_ctas uniform_q_len num_sm enable_cuda_graph"
).split()


def packed(values):
    out, i = [], 0
    while i < len(values):
        same = grow = 1
        while i + same < len(values) and values[i + same] == values[i]:
            same += 1
        while i + grow < len(values) and values[i] != "x" and values[i + grow] == values[i] + grow:
            grow += 1
        n = max(same, grow)
        out.append(str(values[i]) if n == 1 else "%s%s%d" % (values[i], "*" if same >= grow else "+", n))
        i += n
    return " ".join(out)


for name in sys.argv[1:]:
    for line in open(name):
        r = json.loads(line)
        decode = r["fn"] == "DecodePlan"
        parts = [
            ("decode " if decode else "prefill ") + " ".join(str(r[k]) for k in (DECODE if decode else PREFILL)),
            packed(r.get("qo_indptr", [])),
            packed(r["kv_indptr"]),
        ]
        if r["error"] is None:
            words = ["x" if w == 0x5A5A5A5A else w for w in r["int_ws_words"]]
            parts += [packed(r["plan_info"]), "%d %d" % (r["int_ws_bytes"], r["float_ws_bytes"]), packed(words)]
        print(" ; ".join(parts))
