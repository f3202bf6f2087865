#include "tests/support/engine_values.h"

#include <array>
#include <cstring>
#include <map>

#include "kernels/reference/reference.h"

namespace cgr_test {

namespace {

// Every value as a dtype holds it, in the first bytes of a word; by dtype and by whether it is of q.
using Encoded = std::array<uint32_t, 129>;

const Encoded &EncodedValues(int32_t dtype, Tensor which) {
  static const std::map<std::pair<int32_t, bool>, Encoded> all = [] {
    std::map<std::pair<int32_t, bool>, Encoded> made;
    for (int32_t type : { CGR_DTYPE_FP32, CGR_DTYPE_FP16, CGR_DTYPE_BF16 })
      for (Tensor tensor : { kQ, kK })
        for (int32_t i = 0; i < 129; i++)
          cgr__reference_store(type, &made[{ type, tensor == kQ }][size_t(i)], ValueAt(tensor, i));
    return made;
  }();
  return all.at({ dtype, which == kQ });
}

// As many bytes of each element as the compiler knows.
template <size_t kSize>
void StoreElements(const Encoded &encoded, int32_t layer, Tensor which, const Entry &entry, int32_t h, int32_t head_dim,
                   unsigned char *to) {
  for (int32_t d = 0; d < head_dim; d++, to += kSize)
    std::memcpy(to, &encoded[size_t(ValueIndex(layer, which, entry, h, d))], kSize);
}

} // namespace

void StoreHead(int32_t dtype, int32_t layer, Tensor which, const Entry &entry, int32_t h, int32_t head_dim, void *to) {
  const Encoded &encoded = EncodedValues(dtype, which);
  const auto store = dtype == CGR_DTYPE_FP32 ? StoreElements<4> : StoreElements<2>;
  store(encoded, layer, which, entry, h, head_dim, static_cast<unsigned char *>(to));
}

void PutHead(int32_t layer, Tensor which, const Entry &entry, int32_t h, int32_t head_dim, double *to) {
  for (int32_t d = 0; d < head_dim; d++)
    to[d] = ValueOf(layer, which, entry, h, d);
}

} // namespace cgr_test
