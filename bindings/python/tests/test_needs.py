"""What attention kernels can do and want, asked from Python; backends of Python's that describe themselves or say for each layer what
a graph can hold."""

import gc
import unittest
import weakref

from support import PAGE, Engine

import cgr


def needs(**fields):
    return cgr.BackendNeeds(abilities=cgr.Ability.WINDOW | cgr.Ability.SINKS, dtypes=1 << cgr.Dtype.FP32, page_sizes=[16, 64], **fields)


class Caches:
    """A device, and configurations of one layer over its memory."""

    def __enter__(self):
        self.device = cgr.Device("host")
        self.info = self.device.info()
        self.memory = self.device.alloc(8 * 2 * PAGE * 16 * 4)
        return self

    def __exit__(self, *_):
        self.memory.close()
        self.device.close()

    def config(self, *backends, **layer):
        k, v = cgr.kv_view_make_pair(cgr.KvLayout.NHD, self.memory, cgr.Dtype.FP32, PAGE, 1, 16)
        return cgr.Config(
            device_handle=self.device, groups=[cgr.Group(num_pages=8)], max_requests=2, max_tokens=8, max_seq_len=32, backends=backends,
            layers=[cgr.Layer(num_q_heads=1, num_kv_heads=1, head_dim=16, k=k, v=v, **dict(backend=1) | layer)],
        )  # fmt: skip


class Ask(unittest.TestCase):
    def test_the_librarys_own_kernels(self):
        with Caches() as caches:
            answer = cgr.backend_ask(None, caches.info, cgr.Layer(num_q_heads=4, num_kv_heads=1, head_dim=64))
            self.assertTrue(answer.abilities & cgr.Ability.SOFTCAP)
            self.assertFalse(answer.abilities & cgr.Ability.SPARSE)
            self.assertTrue(answer.dtypes & 1 << cgr.Dtype.BF16)
            self.assertEqual(answer.page_multiple, 16)

    def test_a_backend_is_told_the_layer_and_answers(self):
        told = []

        def describe(device, layer):
            told.append((device.kind, layer.num_q_heads, layer.head_dim, layer.k.dtype))
            return needs(layout=cgr.KvLayout.HND, head_dims=[64, 128], preferred_page_size=64)

        layer = cgr.Layer(num_q_heads=4, head_dim=128, k=cgr.KvView(dtype=cgr.Dtype.FP8_E4M3))
        with Caches() as caches:
            answer = cgr.backend_ask(cgr.Backend(name="mine", describe=describe), caches.info, layer)
        self.assertEqual(told, [(cgr.DeviceKind.HOST, 4, 128, cgr.Dtype.FP8_E4M3)])
        self.assertEqual((answer.layout, answer.preferred_page_size), (cgr.KvLayout.HND, 64))
        self.assertEqual((answer.page_sizes[:3], answer.head_dims[:3]), ((16, 64, 0), (64, 128, 0)))
        self.assertEqual(answer.abilities, cgr.Ability.WINDOW | cgr.Ability.SINKS)
        self.assertEqual(answer, needs(layout=cgr.KvLayout.HND, head_dims=[64, 128], preferred_page_size=64))

    def test_failures(self):
        layer = cgr.Layer(num_q_heads=1, head_dim=16)
        with Caches() as caches:

            def ask(describe=None):
                return cgr.backend_ask(cgr.Backend(name="mine", describe=describe), caches.info, layer)

            with self.assertRaises(cgr.CgrError) as refused:
                ask()
            self.assertEqual(refused.exception.status, cgr.Status.ERROR_UNSUPPORTED)
            with self.assertRaisesRegex(KeyError, "inside"):
                ask(lambda *_: {}["inside"])
            with self.assertRaisesRegex(TypeError, "the result of describe is of .*NoneType.*, expected cgr.BackendNeeds"):
                ask(lambda *_: None)
            with self.assertRaises(cgr.CgrError) as refused:
                ask(lambda *_: cgr.BackendNeeds(max_page_size=-1))
            self.assertEqual(refused.exception.status, cgr.Status.ERROR_CALLBACK)
            self.assertRaisesRegex(TypeError, "device is of", cgr.backend_ask, None, caches.device, layer)
            self.assertEqual(ask(lambda *_: needs()), needs(), "it can be asked again")

    def test_what_describe_changes_meanwhile(self):
        layer, backend = cgr.Layer(num_q_heads=1, head_dim=16), cgr.Backend(name="mine")

        def describe(device, given):
            layer.k, layer.num_q_heads, backend.name, backend.describe = cgr.KvView(), 5, "other", None
            given.head_dim = device.kind = 7
            gc.collect()
            return needs()

        backend.describe = describe
        with Caches() as caches:
            cgr.backend_ask(backend, caches.info, layer)
            self.assertEqual((layer.head_dim, caches.info.kind), (16, cgr.DeviceKind.HOST))
        gone = weakref.ref(describe)
        del describe
        gc.collect()
        self.assertIsNone(gone(), "nothing of the call stays")


class Layers(unittest.TestCase):
    def test_a_layer_that_contradicts_the_answer_is_refused(self):
        backend = cgr.Backend(name="mine", describe=lambda *_: needs(), record=len)
        with Caches() as caches:
            self.assertEqual(cgr.validate(caches.config(backend, window_left=8)), [])
            for use in (cgr.Runtime, cgr.runtime_memory):
                with self.assertRaisesRegex(cgr.CgrError, "softcap"):
                    use(caches.config(backend, softcap=2.0))
            self.assertEqual([f.field for f in cgr.validate(caches.config(backend, softcap=2.0))], ["layers[0].softcap"])

    def test_the_exception_of_describe_is_that_of_the_call(self):
        backend = cgr.Backend(name="mine", describe=lambda *_: {}["inside"], record=len)
        with Caches() as caches:
            for use in (cgr.validate, cgr.runtime_memory, cgr.Runtime):
                with self.assertRaisesRegex(KeyError, "inside"):
                    use(caches.config(backend))

    def test_a_layer_says_what_graphs_can_hold(self):
        told = []

        def support_layer(device, group, layer):
            told.append((device.kind, group.page_size, layer.num_q_heads))
            return answer

        every = (cgr.GraphSupport.NEVER, cgr.GraphMode.PIECEWISE), (cgr.GraphSupport.ALWAYS, cgr.GraphMode.FULL)
        for answer, mode in every:
            for support in (None, lambda *_: cgr.GraphSupport.ALWAYS):
                own = cgr.Backend(name="mine", support=support, support_layer=support_layer, record=lambda *_: None)
                with Engine(layer=True, backends=[own], backend=1) as engine:
                    self.assertEqual(engine.runtime.graph_mode()[0], mode)
        self.assertEqual(set(told), {(cgr.DeviceKind.HOST, PAGE, 1)})

    def test_failures_of_support_layer(self):
        with Caches() as caches:
            for function, error in ((lambda *_: {}["inside"], KeyError), (lambda *_: "always", TypeError)):
                backend = cgr.Backend(name="mine", support_layer=function, record=len)
                with self.assertRaises(error):
                    cgr.Runtime(caches.config(backend))


if __name__ == "__main__":
    unittest.main()
