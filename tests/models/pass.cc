#include "tests/models/kit.h"
#include "tests/support/record_buffers.h"

namespace cgr_test {
namespace models {

Pass::Pass(Kit &kit, cgr_recorder *recorder) : kit_(kit), recorder_(recorder) {
  status = cgr_record_get_info(recorder, &info);
  ids_ = RecordBuffer(recorder, CGR_BUFFER_INPUT_IDS, &status);
  positions_ = RecordBuffer(recorder, CGR_BUFFER_POSITIONS, &status);
}

Operation Pass::Make(Kind kind, RowTensor out, RowTensor in) {
  Operation operation = {};
  operation.kind = kind;
  operation.out = out;
  operation.in = in;
  return operation;
}

void Pass::Run(Operation operation, int32_t heads) {
  operation.ids = ids_;
  operation.positions = positions_;
  operation.rows = info.num_tokens * heads;
  if (status == CGR_OK)
    status = Enqueue(kit_.device, kit_.on_cuda, operation, info.stream);
}

void Pass::Embed(RowTensor out, RowTensor table, float scale, RowTensor positions, int32_t offset, RowTensor row) {
  Operation operation = Make(Kind::kEmbed, out, {});
  operation.weight = table;
  operation.scale = scale;
  operation.second = positions;
  operation.offset = offset;
  operation.bias = row;
  Run(operation);
}

void Pass::Linear(RowTensor out, RowTensor in, const Pair &pair, RowTensor residual) {
  Operation operation = Make(Kind::kLinear, out, in);
  operation.weight = pair.weight;
  operation.bias = pair.bias;
  operation.residual = residual;
  Run(operation);
}

void Pass::LinearTransposed(RowTensor out, RowTensor in, const Pair &pair) {
  Operation operation = Make(Kind::kLinear, out, in);
  operation.weight = pair.weight;
  operation.bias = pair.bias;
  operation.transposed = 1;
  Run(operation);
}

void Pass::LayerNorm(RowTensor out, RowTensor in, const Pair &pair, float eps) {
  Operation operation = Make(Kind::kLayerNorm, out, in);
  operation.weight = pair.weight;
  operation.bias = pair.bias;
  operation.eps = eps;
  Run(operation);
}

void Pass::RmsNorm(RowTensor out, RowTensor in, RowTensor weight, float centre, float eps, RowTensor residual) {
  Operation operation = Make(Kind::kRmsNorm, out, in);
  operation.weight = weight;
  operation.scale = centre;
  operation.eps = eps;
  operation.residual = residual;
  Run(operation);
}

void Pass::RmsNormOfHeads(RowTensor out, RowTensor in, int32_t heads, RowTensor weight, float eps) {
  out.width /= heads;
  in.width /= heads;
  Operation operation = Make(Kind::kRmsNorm, out, in);
  operation.weight = weight;
  operation.eps = eps;
  Run(operation, heads);
}

void Pass::Rope(RowTensor inout, int32_t heads, const float *angles) {
  Operation operation = Make(Kind::kRope, inout, inout);
  operation.heads = heads;
  operation.angles = angles;
  Run(operation);
}

void Pass::Activate(Kind kind, RowTensor out, RowTensor in, RowTensor second, float scale) {
  Operation operation = Make(kind, out, in);
  operation.second = second;
  operation.scale = scale;
  Run(operation);
}

void Pass::ClampedGlu(RowTensor out, RowTensor in, float alpha, float limit) {
  Operation operation = Make(Kind::kClampedGlu, out, in);
  operation.scale = alpha;
  operation.limit = limit;
  Run(operation);
}

void Pass::Softmax(RowTensor out, RowTensor in) { Run(Make(Kind::kSoftmax, out, in)); }

void Pass::Mix(RowTensor inout, RowTensor in, RowTensor weights, int32_t column) {
  Operation operation = Make(Kind::kMix, inout, in);
  operation.residual = inout;
  operation.second = weights;
  operation.offset = column;
  Run(operation);
}

cgr_view Pass::View(RowTensor tensor, int32_t heads) {
  cgr_view view = {};
  if (tensor.data != nullptr && status == CGR_OK)
    status = cgr_view_make(tensor.data, cgr_dtype(tensor.dtype), heads, tensor.width / heads, &view);
  return view;
}

void Pass::Attend(int32_t layer, RowTensor q, RowTensor k, RowTensor v, RowTensor out, uint32_t flags) {
  const cgr_layer &of = kit_.Layer(layer);
  cgr_attention call = CGR_ATTENTION_INIT;
  call.layer = layer;
  call.flags = flags;
  call.q = View(q, of.num_q_heads);
  call.k = View(k, of.num_kv_heads);
  call.v = View(v, of.num_kv_heads);
  call.out = View(out, of.num_q_heads);
  if (status == CGR_OK)
    status = cgr_record_attention(recorder_, &call);
}

void Pass::AttendPacked(int32_t layer, RowTensor qkv, RowTensor out) {
  const cgr_layer &of = kit_.Layer(layer);
  cgr_attention call = CGR_ATTENTION_INIT;
  call.layer = layer;
  call.out = View(out, of.num_q_heads);
  cgr_view *const views[] = { &call.q, &call.k, &call.v };
  for (size_t i = 0; i < 3; i++) {
    *views[i] = View(qkv, of.num_q_heads); // the heads are 3 * head_dim apart
    views[i]->data = static_cast<char *>(qkv.data) + i * size_t(of.head_dim) * cgr_dtype_size(cgr_dtype(qkv.dtype));
  }
  if (status == CGR_OK)
    status = cgr_record_attention(recorder_, &call);
}

} // namespace models
} // namespace cgr_test
