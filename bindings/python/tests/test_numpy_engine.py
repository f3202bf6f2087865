"""The engine in numpy of the guide: its answers with few pages, in every graph mode, are those of eager steps with enough pages."""

import os
import random
import unittest

from numpy_engine import REQUESTS, VOCABULARY, Engine
from support import ROOT

import cgr

SEED = int(os.environ.get("CGR_SEED", "5"))


class NumpyEngine(unittest.TestCase):
    def test_answers_are_those_of_eager_steps(self):
        rng = random.Random(SEED)
        prompts = [[rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 50))] for _ in range(12)]
        counts = [rng.randint(1, 40) for _ in prompts]
        enough = Engine(2 + REQUESTS * 8, graph_mode=cgr.GraphMode.NONE)
        wanted = enough.generate(prompts, counts)
        self.assertEqual((enough.replays, enough.preempted), (0, 0))
        self.assertEqual([len(t) - len(p) for t, p in zip(wanted, prompts)], counts)
        enough.close()
        for mode in (cgr.GraphMode.FULL, cgr.GraphMode.PIECEWISE, cgr.GraphMode.FULL_DECODE_ONLY):
            with self.subTest(mode=mode, seed=SEED):
                engine = Engine(10, graph_mode=mode)
                self.assertEqual(engine.generate(prompts, counts), wanted)
                self.assertGreater(engine.preempted, 0)
                self.assertGreater(engine.replays, 0)
                self.assertEqual(len(engine.free) + len(engine.given_back), 8, "no page is lost")
                engine.close()

    def test_the_guide_has_these_lines(self):
        with open(os.path.join(ROOT, "docs/python.md"), encoding="utf-8") as file:
            page = file.read()
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "numpy_engine.py"), encoding="utf-8") as file:
            parts = [part.split("\n    # end")[0] for part in file.read().split("    # begin: ")[1:]]
        self.assertEqual([part.split("\n")[0] for part in parts], ["views", "pages", "step"])
        for part in parts:
            lines = [line[4:] for line in part.rstrip().split("\n")[1:]]
            self.assertIn("```python\n" + "\n".join(lines) + "\n```", page)


if __name__ == "__main__":
    unittest.main()
