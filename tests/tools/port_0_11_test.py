"""Tests of tools/port_0_11.py. Runs in the project's root: port_0_11_test.py [-v]"""

import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "tools")
import port_0_11  # noqa: E402

HOMES = port_0_11.find_homes("include")


def ported(text, path="engine.c", wrap=True):
    """The text, and what is left to a person."""
    variables = port_0_11.find_variables([text])
    return port_0_11.port(path, text, variables, HOMES, wrap)


class Calls(unittest.TestCase):
    def check(self, before, after, path="engine.c"):
        """`before` within a file that declares a step, a result and a request's info."""
        head = "#include <cgr/cgr.h>\n#include <cgr/tracing.h>\ncgr_step step, *next = &step, steps[4];\ncgr_step_result result;\ncgr_request_info info;\nuint64_t seq;\n"
        text, left = ported(head + before, path)
        self.assertEqual((text[len(head):], left), (after, []))
        return text

    def test_edits_of_the_standing_batch(self):
        self.check("cgr_standing_put(rt, 0, 0, row, n, tokens, 0);", "cgr_standing_add(rt, NULL, row, n, tokens, 0);")
        self.check("cgr_standing_set(e->rt, 0, 0, f(a, b), 1, NULL, 0);", "cgr_standing_update(e->rt, NULL, f(a, b), 1, NULL, 0);")
        self.check("x = cgr_standing_take(rt, 0, 0, row);", "x = cgr_standing_remove(rt, NULL, row);")
        self.check("cgr_standing_swap(rt, lane, 0, a, b);", "cgr_standing_swap(rt, &(cgr_where){ lane, 0 }, a, b);")
        self.check("edit = cgr_standing_take;", "edit = cgr_standing_remove;")

    def test_waits_take_the_mark_of_what_names_the_step(self):
        self.check("cgr_step_wait(rt, 0, step.seq, -1, &result);", "cgr_step_wait(rt, step.mark, -1, &result);")
        self.check("cgr_step_wait(rt, 0, next->seq, 0, NULL);", "cgr_step_wait(rt, next->mark, 0, NULL);")
        self.check("cgr_step_wait(rt, 0, steps[i - 1].seq, 0, NULL);", "cgr_step_wait(rt, steps[i - 1].mark, 0, NULL);")
        self.check("cgr_step_wait(rt, 0, info.last_seq, 0, NULL);", "cgr_step_wait(rt, info.last, 0, NULL);")
        self.check("cgr_step_wait(rt, lane, seq, 0, NULL);", "cgr_step_wait(rt, (cgr_mark){ lane, 0, seq }, 0, NULL);")
        self.check("cgr_step_wait(rt, 0, seq, 0, NULL);", "cgr_step_wait(rt, cgr_mark{ 0, 0, seq }, 0, NULL);", "engine.cc")

    def test_fields_that_have_moved(self):
        self.check("use(step.seq, result.lane, info.last_seq, other.seq);",
                   "use(step.mark.seq, result.mark.lane, info.last.seq, other.seq);")

    def test_names_of_on_demand_buffers_and_plans(self):
        self.check("cgr_config c = { .derived = CGR_DERIVED(b) }; c.derived |= derived; other.derived = 1;",
                   "cgr_config c = { .on_demand = CGR_ON_DEMAND(b) }; c.on_demand |= derived; other.derived = 1;")
        head = "#include <cgr/planners.h>\n"
        text, left = ported(head + "cgr_metadata m; cgr_metadata_derived d; m.derived = &d;", "engine.cc")
        self.assertEqual((text[len(head):], left), ("cgr_metadata m; cgr_metadata_on_demand d; m.on_demand = &d;", []))
        self.check("in.line_query_len = in.queue_tile_q;", "in.decode_query_len = in.prefill_tile_q;")

    def test_every_parameter_has_its_own_type(self):
        head = "#include <cgr/cgr.h>\nvoid f(cgr_runtime *rt, const cgr_step *a, cgr_step_result *b, int seq, cgr_request_info *i, int c) {\n"
        text, left = ported(head + "use(a->seq, b->seq, i->last_seq, c.seq); cgr_step_wait(rt, 0, b->seq, 0, b);")
        self.assertEqual((text[len(head):], left),
                         ("use(a->mark.seq, b->mark.seq, i->last.seq, c.seq); cgr_step_wait(rt, b->mark, 0, b);", []))

    def test_calls_within_calls_and_over_lines(self):
        self.check("OK(cgr_step_wait(rt,\n  0, step.seq,\n  wait(0, 1), &result));", "OK(cgr_step_wait(rt, step.mark, wait(0, 1), &result));")
        self.check("f(cgr_buffer_get(rt, 0, 0, b, g(cgr_standing_take(rt, 0, 0, 1)), &v));",
                   "f(cgr_buffer_get(rt, NULL, b, g(cgr_standing_remove(rt, NULL, 1)), &v));")

    def test_comments_and_text_stay(self):
        same = '/* cgr_standing_put(rt, 0, 0, 1) */ puts("cgr_step_wait(rt, 0, step.seq, 0, 0)"); // cgr_standing_set'
        self.check(same, same)

    def test_values_that_are_written_now(self):
        text, left = ported('#include <cgr/cgr.h>\nint f(void) { return cgr_runtime_completed(rt, 0) > 1; }\n')
        self.assertEqual(left, [])
        self.assertIn("return port_runtime_completed(rt) > 1;", text)
        self.assertEqual(text.count("static inline uint64_t port_runtime_completed(cgr_runtime *runtime) {"), 1)
        text, left = ported("#include <cgr/cgr.h>\nuint64_t s; void f(void) { cgr_runtime_flush(rt, 0, stream, &s); }\n")
        self.assertIn("port_runtime_flush(rt, stream, &s);", text)
        self.check("cgr_runtime_flush(rt, 0, stream, NULL);", "cgr_runtime_flush(rt, NULL, NULL, stream);")

    def test_what_is_left_is_told_by_its_line(self):
        text, left = ported('\n\nvoid f(void) {\n  cgr_buffer_get_declared(rt, 0, "a", &v);\n}\n')
        self.assertEqual([line for line, _ in left], [4])
        self.assertIn("CGR_BUFFER_DECLARED", left[0][1])
        self.assertIn("cgr_buffer_get_declared", text)
        _, left = ported("cgr_standing_take(rt, lane, 0, row);", "engine.cc")
        self.assertIn("cgr_where", left[0][1])

    def test_a_second_time_changes_nothing(self):
        text = self.check("cgr_step_wait(rt, 0, step.seq, -1, &result); cgr_runtime_trace_step(rt, seq, out, 1, &n);",
                          "cgr_step_wait(rt, step.mark, -1, &result); cgr_runtime_trace_step(rt, (cgr_mark){ 0, 0, seq }, out, 1, &n);")
        self.assertEqual(ported(text)[0], text)
        text = self.check("cgr_runtime_timing(rt, step.seq, s, 1, &n); cgr_standing_put(rt, 0, 0, row, 1, &t, 0);",
                          "cgr_runtime_timing(rt, step.mark, s, 1, &n); cgr_standing_add(rt, NULL, row, 1, &t, 0);")
        self.assertEqual(ported(text)[0], text)


class Includes(unittest.TestCase):
    def test_headers_apart_from_cgr_h_are_added_once(self):
        text, _ = ported('#include <stdio.h>\n#include <cgr/cgr.h>\nputs(cgr_dtype_name(t)); cgr_stats s = CGR_STATS_INIT;\n')
        self.assertIn("#include <cgr/cgr.h>\n#include <cgr/tracing.h>\n#include <cgr/names.h>\n", text)
        self.assertEqual(ported(text)[0], text)

    def test_of_each_kind(self):
        for header, code in (("inspect", "CGR_GRAPH_READY"), ("planners", "cgr_plan_input in;"), ("interop/fa3", "CGR_FA3_VLLM"),
                             ("interop/flashinfer", "cgr_flashinfer_plan p;"), ("tracing", "CGR_HISTOGRAM_BUCKETS"),
                             ("interop/block_table", "cgr_block_table_build(a, b, c)"), ("interop/flashmla", "CGR_FLASHMLA_INPUT_INIT")):
            text, _ = ported('#include "cgr/cgr.h"\n' + code + "\n")
            self.assertEqual(text, '#include "cgr/cgr.h"\n#include "cgr/%s.h"\n%s\n' % (header, code))


OLD = r"""#include <cgr/cgr.h>
#include <stdio.h>

static cgr_status run(cgr_runtime *rt, cgr_step *step, cudaStream_t stream, int32_t row) {
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  cgr_request_info info = CGR_REQUEST_INFO_INIT;
  cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
  const char *why = "";
  uint64_t seq = 0;
  int32_t token = 3;
  cgr_standing_put(rt, 0, 0, row, 1, &token, 0);
  cgr_standing_take(rt, 0, 0, row);
  cgr_buffer_get(rt, 0, 0, CGR_BUFFER_COUNTS, 0, &view);
  cgr_request_get_info(rt, row, &info);
  cgr_runtime_flush(rt, 0, stream, &seq);
  for (int32_t i = 0; i < cgr_runtime_num_keys(rt); i++)
    cgr_runtime_graph_stats(rt, i, &stats);
  printf("%s %s\n", cgr_graph_mode_name(cgr_runtime_graph_mode(rt, &why)), why);
  if (cgr_runtime_completed(rt, 0) < info.last_seq || !cgr_runtime_device(rt))
    return cgr_step_wait(rt, 0, seq, -1, NULL);
  return cgr_step_wait(rt, 0, step->seq, -1, &result);
}

int main(void) { return run(NULL, NULL, NULL, 0) != CGR_OK; }
"""


class Programs(unittest.TestCase):
    """What is ported compiles without a warning."""

    def test_compile(self):
        compiler = (os.environ.get("CC") or "gcc").split()
        if subprocess.run(compiler + ["--version"], stdout=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("no C compiler: neither $CC nor gcc")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "engine.c")
            with open(path, "w", encoding="utf-8") as file:
                file.write(OLD)
            self.assertEqual(port_0_11.main(["--headers", "include", path]), 0)
            flags = ["-std=c11", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-Iinclude", "-fsyntax-only"]
            done = subprocess.run(compiler + flags + [path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
