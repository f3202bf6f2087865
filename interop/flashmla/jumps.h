/* How the device finds in parallel where FlashMLA's parts begin (format.h), although each begins where the one before ends.
 *
 * A part begins Q after the one before, or snaps to the begin of a request. Wind the requests around a circle of Q: steps of Q
 * stay where they are, and all that is left is a cursor that each request in its turn may push forward, request j snaps when (S_j
 * - cursor) mod Q <= c, and then the cursor is at S_j mod Q. With S_j = turn * Q + residue, and `wraps` times that the cursor
 * passed 0 so far, parts begin at (p + wraps) Q + cursor. So the first of them at or after S_j follows without a division. This
 * holds for Q > c; else every request is snapped to.
 *
 * Whether a snap at i is followed by one at j depends on the two residues alone. The device evaluates this for all pairs among
 * 32 neighbours at once. So it knows, for each of them that may be snapped to first, where the cursor is after those 32; with
 * which of the next 32 is snapped to from there, it also knows where the cursor is after 64. One warp then takes the cursor
 * through all requests, 32 or 64 in each step.
 *
 * Residues are compared as `angles`, fractions of the circle in 2^-32: there, "mod Q" is what the hardware does. A angle is
 * floor(residue * I), where I is 2^32 / Q, Q I being 2^32 but for less than 1. So the difference of two angles whose residues
 * differ by t is floor(t I) + { -1, 0, 1, 2 }; and I is at least 8, since Q is at most 2^29. */
#ifndef CGR_INTEROP_FLASHMLA_JUMPS_H
#define CGR_INTEROP_FLASHMLA_JUMPS_H

#include "interop/flashmla/format.h"

typedef struct cgr__flashmla_circle {
  uint32_t quota;
  uint32_t high, low; /* 2^64 / Q, a little more at most */
  uint32_t reach;     /* angles that differ by at most this are c apart at most */
} cgr__flashmla_circle;

typedef struct cgr__flashmla_place {
  int32_t turn;
  uint32_t residue, angle;
} cgr__flashmla_place;

/* 2^64 / d or above, by a factor of less than 1 + 2^-47 and one more at most; d > 1. Quotients below 2^10 are exact with it, and
 * angles as said. */
CGR__HOST_DEVICE uint64_t cgr__flashmla_wide_inverse(uint32_t d) {
#ifdef __CUDA_ARCH__
  double n = (double)d, y; /* y: about 20 bits at first, and twice as many with each step */
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(n));
  y = fma(y, fma(-n, y, 1.0), y);
  y = fma(y, fma(-n, y, 1.0), y);
  return (uint64_t)(y * (18446744073709551616.0 + 65536.0)) + 1; /* 2^64 (1 + 2^-48), and what the cast drops */
#else
  return ~(uint64_t)0 / d + 1;
#endif
}

CGR__HOST_DEVICE uint32_t cgr__flashmla_angle(const cgr__flashmla_circle *o, uint32_t residue) {
  return residue * o->high + cgr__flashmla_high(residue, o->low);
}

/* Q > c. */
CGR__HOST_DEVICE cgr__flashmla_circle cgr__flashmla_circle_for(int32_t quota, int32_t overhead) {
  uint64_t inverse = cgr__flashmla_wide_inverse((uint32_t)quota);
  cgr__flashmla_circle o = { (uint32_t)quota, (uint32_t)(inverse >> 32), (uint32_t)inverse, 0 };
  o.reach = cgr__flashmla_angle(&o, (uint32_t)overhead) + 2;
  return o;
}

CGR__HOST_DEVICE cgr__flashmla_place cgr__flashmla_place_of(const cgr__flashmla_circle *o, uint32_t x) {
  cgr__flashmla_place place;
  place.turn = (int32_t)(((uint64_t)x * o->high + cgr__flashmla_high(x, o->low)) >> 32);
  place.residue = x - (uint32_t)place.turn * o->quota;
  place.angle = cgr__flashmla_angle(o, place.residue);
  return place;
}

/* Whether a request is snapped to when the cursor stands there. */
CGR__HOST_DEVICE int32_t cgr__flashmla_snaps(uint32_t angle, uint32_t cursor, uint32_t reach) { return angle - cursor <= reach; }

/* Where parts are in a request, from the cursor after it (at its own residue, when it was snapped to). */
typedef struct cgr__flashmla_inside {
  int32_t part;  /* the first that begins at or after the request's begin */
  int32_t block; /* in which block of it: 0 for a snap; in the request when below n_i */
} cgr__flashmla_inside;

CGR__HOST_DEVICE cgr__flashmla_inside cgr__flashmla_look(const cgr__flashmla_circle *o, int32_t turn, uint32_t residue,
                                                         uint32_t cursor, int32_t wraps) {
  int32_t passed = residue > cursor;
  cgr__flashmla_inside in = { turn - wraps + passed, (int32_t)(cursor - residue + (passed ? o->quota : 0)) };
  return in;
}

/* The first part that begins at or after x, the end of a request, as if a request that may be snapped to began there. From the
 * cursor after the request. */
CGR__HOST_DEVICE int32_t cgr__flashmla_end(const cgr__flashmla_circle *o, int32_t overhead, int32_t turn, uint32_t residue,
                                           uint32_t cursor, int32_t wraps) {
  int32_t passed = residue < cursor;
  uint32_t ahead = residue - cursor + (passed ? o->quota : 0);
  return turn - wraps - passed + (ahead > (uint32_t)overhead);
}

#endif
