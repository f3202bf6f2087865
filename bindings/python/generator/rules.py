"""What the headers cannot say: names in Python, what is written by hand in src/, what is left out and why."""

# A function of C: the name in Python, and the function in src/ that does it (None: a type or property of handles.c).
BY_HAND = {
    "cgr_device_open": ("Device", None),
    "cgr_device_close": ("Device.close", None),
    "cgr_stream_create": ("Device.stream", None),
    "cgr_stream_destroy": ("Stream.close", None),
    "cgr_stream_synchronize": ("Stream.synchronize", None),
    "cgr_event_create": ("Device.event", None),
    "cgr_event_destroy": ("Event.close", None),
    "cgr_event_record": ("Event.record", None),
    "cgr_event_wait": ("Event.wait", None),
    "cgr_memory_alloc": ("Device.alloc", None),
    "cgr_memory_free": ("Memory.close", None),
    "cgr_memory_alloc_pinned": ("Device.alloc_pinned", None),
    "cgr_memory_free_pinned": ("Memory.close", None),
    "cgr_runtime_create": ("Runtime", None),
    "cgr_runtime_destroy": ("Runtime.close", None),
    "cgr_runtime_device": ("Runtime.device", None),
    "cgr_validate": ("validate", "cgrpy_py_validate"),
    "cgr_runtime_memory": ("runtime_memory", "cgrpy_py_runtime_memory"),
    "cgr_backend_ask": ("backend_ask", "cgrpy_py_backend_ask"),
    "cgr_flashinfer_cascade_build": ("flashinfer_cascade_build", "cgrpy_py_cascade_build"),
    "cgr_launch_host": ("Device.launch_host", "cgrpy_py_launch_host"),
    "cgr_record_call": ("Recorder.call", "cgrpy_py_record_call"),
    "cgr_record_get_info": ("Recorder.info", "cgrpy_py_record_info"),
    "cgr_runtime_capture": ("Runtime.capture", "cgrpy_py_capture"),
    "cgr_runtime_warmup": ("Runtime.warmup", "cgrpy_py_warmup"),
    "cgr_runtime_estimate_capture": ("Runtime.estimate_capture", "cgrpy_py_estimate_capture"),
    "cgr_step_prepare": ("Runtime.prepare", "cgrpy_py_prepare"),
    "cgr_step_prepare_wait": ("Runtime.prepare_wait", "cgrpy_py_prepare_wait"),
    "cgr_step_launch": ("Runtime.launch", "cgrpy_py_launch"),
    "cgr_step_cancel": ("Runtime.cancel", "cgrpy_py_cancel"),
    "cgr_step_wait": ("Runtime.wait", "cgrpy_py_wait"),
    "cgr_requests_set_pages": ("Runtime.requests_set_pages", "cgrpy_py_requests_set_pages"),
    "cgr_requests_drop_pages": ("Runtime.requests_drop_pages", "cgrpy_py_requests_drop_pages"),
    "cgr_request_set_data": ("Runtime.request_set_data", "cgrpy_py_set_data"),
}

# Arguments of those: (name, type in stubs, default), and what comes back.
SIGNATURES = {
    "cgr_validate": ("config: Config, device: DeviceHandle | None = None", "list[Finding]"),
    "cgr_runtime_memory": ("config: Config", "MemorySizes"),
    "cgr_backend_ask": ("backend: Backend | None, device: DeviceInfo, layer: Layer", "BackendNeeds"),
    "cgr_flashinfer_cascade_build": (
        "cascade: FlashinferCascade, input: FlashinferPrefillInput, int_workspaces: Sequence[Any]",
        "tuple[FlashinferPlan, FlashinferPlan]",
    ),
    "cgr_launch_host": ("function: Callable[..., Any], args: Sequence[Any] | None, stream: Any", "None"),
    "cgr_record_call": ("function: Callable[..., Any], args: Sequence[Any] | None = None", "None"),
    "cgr_record_get_info": ("", "RecordInfo"),
    "cgr_runtime_capture": ("capture: Capture", "None"),
    "cgr_runtime_warmup": ("capture: Capture", "None"),
    "cgr_runtime_estimate_capture": ("capture: Capture", "CaptureEstimate"),
    "cgr_step_prepare": ("batch: Batch, step: Step | None = None", "Step"),
    "cgr_step_prepare_wait": ("batch: Batch, stream: Any, timeout_ms: int = -1, step: Step | None = None", "Step"),
    "cgr_step_launch": ("step: Step, stream: Any", "None"),
    "cgr_step_cancel": ("step: Step", "None"),
    "cgr_step_wait": ("mark: Mark | Step | StepResult, timeout_ms: int = -1, result: StepResult | None = None", "StepResult | None"),
    "cgr_requests_set_pages": ("group: int, rows: Any, firsts: Any, pages: Any, counts: Any = None", "None"),
    "cgr_requests_drop_pages": ("group: int, rows: Any, firsts: Any, counts: Any = None", "None"),
    "cgr_request_set_data": ("row: int, buffer: int, data: Any", "None"),
}

RANKS = "not bound yet: ranks of an engine in Python exchange by torch.distributed"

PROGRAMS = "not bound yet: lengths of a draft's rows"

LEFT_OUT = {
    "cgr_init": "the constructors of the structs call it",
    "cgr_last_message": "CgrError.message has it",
    "cgr_last_device_code": "CgrError.device_code has it",
    "cgr_validation_layer": "DeviceConfig(layer=True) sets it",
    "cgr_program_set_length": PROGRAMS,
    "cgr_program_get_length": PROGRAMS,
    "cgr_board_open": RANKS,
    "cgr_board_close": RANKS,
    "cgr_board_exchange": RANKS,
    "cgr_ranks_create": RANKS,
    "cgr_ranks_destroy": RANKS,
    "cgr_ranks_agree": RANKS,
    "cgr_ranks_proposal": RANKS,
    "cgr_ranks_decide": RANKS,
    "cgr_ranks_barrier": RANKS,
    "cgr_ranks_capture": RANKS,
    "cgr_ranks_note": RANKS,
    "cgr_ranks_report": RANKS,
    "cgr_resource_register": RANKS,
    "cgr_resource_unregister": RANKS,
    "cgr_resource_count_graphs": RANKS,
    "cgr_record_use_resource": RANKS,
    "cgr_record_fail": RANKS,
    "cgr_record_range_begin": RANKS,
    "cgr_record_range_end": RANKS,
    "cgr_record_fingerprint": RANKS,
    "cgr_record_compare_fingerprints": RANKS,
    "cgr_runtime_progress": RANKS,
    "cgr_runtime_abandon": RANKS,
    "cgr_nccl_find": RANKS,
    "cgr_nccl_create": RANKS,
    "cgr_nccl_destroy": RANKS,
    "cgr_nccl_get_info": RANKS,
    "cgr_nccl_register_buffer": RANKS,
    "cgr_nccl_unregister_buffer": RANKS,
    "cgr_nccl_record": RANKS,
    "cgr_nccl_record_between": RANKS,
    "cgr_nccl_record_comparison": RANKS,
    "cgr_nccl_check": RANKS,
    "cgr_nccl_abort": RANKS,
    "cgr_nccl_where": RANKS,
    "cgr_ranks_look": RANKS,
    "cgr_ranks_watch": RANKS,
    "cgr_watchdog_stop": RANKS,
}

LEFT_OUT_STRUCTS = {
    "cgr_exchange": RANKS,
    "cgr_ranks_config": RANKS,
    "cgr_rank_proposal": RANKS,
    "cgr_agreement": RANKS,
    "cgr_resource": RANKS,
    "cgr_fingerprint": RANKS,
    "cgr_progress": RANKS,
    "cgr_nccl_id": RANKS,
    "cgr_nccl_functions": RANKS,
    "cgr_nccl_config": RANKS,
    "cgr_nccl_info": RANKS,
    "cgr_nccl_call": RANKS,
    "cgr_rank_watch": RANKS,
}

# Of fields that are something else in Python.
FIELD_DOCS = {
    "cgr_device_config.layer": "True: the validation layer, which checks every call, for development; False: none",
    "cgr_backend.check": "check(device, group, layer): every reason why it cannot run this layer on this device, as a list of "
    "cgr.Finding, or None. Called once per layer by validate, runtime_memory and Runtime, if there is a device. None: it can run all",
}

# struct.field, or a field of every struct.
LEFT_OUT_FIELDS = {
    "size": "the constructors set it",
    "magic": "the constructors set it",
    "version": "the constructors set it",
    "context": "the binding's own: it says which Python functions are called",
    "log_context": "the same",
    "dump_context": "the same",
    "violation_context": "the same",
    "cgr_capture.engine": "the same",
}

LEFT_OUT_ENUMERATORS = "names that end in _ count the others"

# Elements behind a pointer, in C over `s`; None: they cannot be known here. What is not listed follows from the comment.
LENGTHS = {
    "cgr_batch.tokens": "sum_of(s->query_lens, s->num_requests)",
    "cgr_metadata.tokens": "sum_of(s->query_lens, s->num_requests)",
    "cgr_staged.data": None,  # by prepare
    "cgr_self_test.pages": None,  # num_groups is the runtime's
    "cgr_metadata_group.page_table": None,  # max_rows is that of cgr_metadata
    "cgr_metadata_group.slot_mapping": None,
    "cgr_metadata_group.kv_indptr": None,
    "cgr_metadata_group.kv_last_page_len": None,
    "cgr_metadata_on_demand.kv_indices": "s->max_kv_indices",
    "cgr_metadata_on_demand.block_table": None,
    "cgr_metadata_on_demand.prefill_kv_indptr": None,
    "cgr_metadata_on_demand.prefill_kv_last_page_len": None,
    "cgr_block_table_input.page_table": "(int64_t)s->num_rows * s->page_table_stride",
    "cgr_fa3_input.live_requests": "1",
    "cgr_flashinfer_cascade.kv_indices": "last_of(s->kv_indptr, s->num_requests)",
    "cgr_flashinfer_cascade.shared_qo_indptr": "(int64_t)s->num_groups + 1",
    "cgr_flashinfer_cascade.shared_kv_indices": "last_of(s->kv_indptr, s->num_requests)",
    "cgr_flashinfer_cascade.unique_kv_indices": "last_of(s->kv_indptr, s->num_requests)",
    "cgr_gather.kv_indices": None,  # kv_indptr may be on the device
    "cgr_gather.block_table": "s->table_stride < (int64_t)1 << 32 ? (int64_t)s->num_requests * s->table_stride : 0",
    "cgr_qkv_transform.cos_sin": "(int64_t)s->num_positions * s->rotary_dim",
    "cgr_measure.maxima": "(int64_t)s->num_heads * s->head_dim",
    "cgr_config.decode_buckets": "s->num_decode_buckets",
    "cgr_config.query_lens": "s->num_query_lens",
    "cgr_config.device_memory": "s->device_memory_size",
    "cgr_config.pinned_memory": "s->pinned_memory_size",
    "cgr_value_check.data": None,
    "cgr_watch.data": None,
    "cgr_group.page_table": None,
    "cgr_step_result.num_tokens": "(int64_t)s->num_steps * s->num_requests",
    "cgr_step_result.tokens": "(int64_t)s->num_steps * s->num_requests * s->token_stride",
}

# Which count an array of numbers sets.
COUNTS = {
    "cgr_config.decode_buckets": "num_decode_buckets",
    "cgr_config.query_lens": "num_query_lens",
    "cgr_batch.rows": "num_requests",
    "cgr_plan_input.query_lens": "num_requests",
    "cgr_stops.tokens": "num_tokens",
    "cgr_metadata.rows": "num_requests",
}

# Pointers to structs that are one, and not an array.
SINGLE = {"cgr_batch.forced_key", "cgr_record_info.plan_key", "cgr_attention.transform"}
# Pointers that stand for objects of Python.
OBJECTS = {"cgr_record_info.plan_state"}
# Arrays of structs whose number another field has.
STRUCT_LENGTHS = {"cgr_metadata.on_demand": "s->num_groups"}

# Structs whose pointers cgr fills with addresses of the host.
HOST_RESULTS = {"cgr_step_result"}
# Pointers that every call reads on the host.
ON_HOST = {
    "cgr_config.decode_buckets",
    "cgr_config.query_lens",
    "cgr_config.pinned_memory",
    "cgr_plan_input.query_lens",
    "cgr_self_test.pages",
    "cgr_stops.tokens",
}
# Functions that read a struct's arrays on the host, besides those that build and split: when, in C over `s`.
READ_ON_HOST = {
    "cgr_flashinfer_decode_size": "s->graph == 0",
    "cgr_flashinfer_prefill_size": "s->graph == 0 || (s->fixed_split_size != 0 && s->force_split_kv == 0)",
}
# Pointers whose memory no call reads on the host.
ADDRESSES = {
    "cgr_block_table_input.sinks",
    "cgr_flashinfer_cascade.status",
    "cgr_flashinfer_decode_input.status",
    "cgr_flashinfer_prefill_input.status",
}
# Pointers to the first element of an array whose strides other fields tell.
STRIDED = {"cgr_view.data", "cgr_kv_view.base", "cgr_kv_view.scale", "cgr_value_check.data", "cgr_watch.data"}
# Arguments that are arrays, or None: how many elements they have.
ARGUMENT_LENGTHS = {
    ("cgr_standing_add", "tokens"): "query_len",
    ("cgr_standing_update", "tokens"): "query_len",
}

# What an argument is if it is not given.
DEFAULTS = {
    ("cgr_standing_add", "flags"): "0",
    ("cgr_standing_update", "flags"): "0",
    ("cgr_buffer_get", "index"): "0",
    ("cgr_record_buffer", "index"): "0",
    ("cgr_runtime_release_graphs", "keep_bytes"): "0",
}

# Methods of structs: (name, function in src/, flags, signature).
STRUCT_METHODS = {
    "cgr_step": [
        ("launch", "cgrpy_step_launch", "METH_FASTCALL | METH_KEYWORDS", "stream: Any", "None", "cgr_step_launch"),
        (
            "wait", "cgrpy_step_wait", "METH_FASTCALL | METH_KEYWORDS", "timeout_ms: int = -1, result: StepResult | None = None",
            "StepResult | None", "cgr_step_wait",
        ),  # fmt: skip
        ("cancel", "cgrpy_step_cancel", "METH_NOARGS", "", "None", "cgr_step_cancel"),
    ],
    "cgr_buffer_view": [("array", "cgrpy_buffer_array", "METH_NOARGS", "", "Array", "cgr_buffer_get")],
}

FLAG_ENUMS = {"cgr_planned", "cgr_ability"}
# Fields whose enum the comment names by its flags: CGR_LAYER_*.
FLAG_FIELDS = {
    "CGR_LAYER_": "cgr_layer_flag",
    "CGR_ATTENTION_": "cgr_attention_flag",
    "CGR_VALUES_": "cgr_value_flag",
    "CGR_BACKEND_": "cgr_backend_flag",
    "CGR_PLANNED_": "cgr_planned",
    "CGR_CAPTURE_": "cgr_capture_flag",
    "CGR_PLAN_": "cgr_plan_flag",
    "CGR_TRANSFORM_": "cgr_transform_flag",
    "CGR_ABILITY_": "cgr_ability",
}


def left_out_field(struct, field):
    if struct in LEFT_OUT_STRUCTS:
        return LEFT_OUT_STRUCTS[struct]
    if field.startswith("reserved"):
        return "zero in this version"
    return LEFT_OUT_FIELDS.get(f"{struct}.{field}") or LEFT_OUT_FIELDS.get(field)


def class_name(struct):
    """cgr_fa3_input -> Fa3Input."""
    return "".join(part.capitalize() for part in struct[len("cgr_") :].split("_"))


OWNERS = {"cgr_device": "Device", "cgr_runtime": "Runtime", "cgr_recorder": "Recorder"}


def python_name(function):
    """Where a generated function is: "Runtime.request_open" or "plan_size"."""
    if function.name in BY_HAND:
        return BY_HAND[function.name][0]
    name = function.name[len("cgr_") :]
    first = function.parameters[0].type if function.parameters else None
    owner = OWNERS.get(first.base) if first is not None and first.stars == 1 else None
    if owner is None:
        return name.replace("_get_", "_") if "_get_" in name else name
    for prefix in {"Device": ("device_",), "Runtime": ("runtime_", "step_"), "Recorder": ("record_",)}[owner]:
        name = name[len(prefix) :] if name.startswith(prefix) else name
    name = name[len("get_") :] if name.startswith("get_") else name.replace("_get_", "_")
    return f"{owner}.{'buffer' if name == 'buffer_get' else name}"


def member_names(enum):
    """{enumerator: name in Python}: without what all begin with, as long as the rest is a name."""
    names = [name for name, _, _ in enum.members if not name.endswith("_")]
    parts = [name.split("_") for name in names]
    shared = 0
    while all(len(p) > shared + 1 for p in parts) and len({p[shared] for p in parts}) == 1:
        shared += 1
    while any(p[shared][0].isdigit() for p in parts):
        shared -= 1
    if enum.name == "cgr_flashinfer_layout":
        shared = 2
    return {name: "_".join(p[shared:]) for name, p in zip(names, parts)}
