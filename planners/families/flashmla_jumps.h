/* How the device finds in parallel where FlashMLA's parts begin (flashmla.h), although each begins where the one before ends.
 *
 * A part begins Q after the one before, or at the begin of a request. So between two parts that begin with a request there are
 * only steps of Q, and the next such request after i is known from S alone: the first j > i with
 *   (S_j - S_i) mod Q <= c
 * (steps of Q from S_i pass within the c before S_j), or the end. When Q <= c that is i + 1. It takes ceil((S_j - S_i - c) /
 * Q) parts. This makes a tree of jumps that is found for all requests at once; it is followed from request 0 by doubling:
 * after k rounds the first 2^k landings are known, and the jumps are 2^k jumps long. Then part p begins p - m steps of Q after
 * the last landing, which is at part m <= p.
 *
 * To find j: requests are marked in bit sets by their S_j mod Q, in classes of c + 1 neighbouring values, and those folded into
 * `sets`. What lies within c after S_i mod Q is in at most two of the sets. A summary of the words that are not empty keeps a
 * search from reading them all. Marks are candidates: the condition itself is checked.
 *
 * Each function is one thread's work, and reads nothing that another call of it writes. tests/planners/families goes through them
 * in a loop each. */
#ifndef CGR_PLANNERS_FAMILIES_FLASHMLA_JUMPS_H
#define CGR_PLANNERS_FAMILIES_FLASHMLA_JUMPS_H

#include "planners/families/flashmla.h"

#ifdef __CUDA_ARCH__
#define CGR__FLASHMLA_OR(word, bits) atomicOr(&(word), (bits))
#define CGR__FLASHMLA_LOWEST(bits) (__ffs((int)(bits)) - 1)
#else
#define CGR__FLASHMLA_OR(word, bits) ((word) |= (bits))
#define CGR__FLASHMLA_LOWEST(bits) __builtin_ctz(bits)
#endif

#define CGR__FLASHMLA_MARK_WORDS 8448 /* of all sets: 256 sets of 1024 requests */

/* The bit sets: words of each, words of its summary, and how many sets. */
typedef struct cgr__flashmla_marks {
  int32_t words, summary_words, sets; /* sets: a power of two */
} cgr__flashmla_marks;

CGR__FLASHMLA_FN cgr__flashmla_marks cgr__flashmla_marks_for(int32_t num_requests) {
  cgr__flashmla_marks m = { num_requests / 32 + 1, num_requests / 1024 + 1, 256 };
  while (m.sets > 1 && m.sets * m.words > CGR__FLASHMLA_MARK_WORDS)
    m.sets /= 2;
  return m;
}

typedef struct cgr__flashmla_line {
  const int32_t *start; /* [num_live + 1] S */
  int32_t num_live, total;
  int32_t quota, overhead;
  uint32_t inverse;       /* ~0u / quota */
  uint32_t inverse_width; /* ~0u / (overhead + 1) */
  cgr__flashmla_marks marks;
  uint32_t *bits;    /* [sets][words] zero at first */
  uint32_t *summary; /* [sets][summary_words] zero at first */
} cgr__flashmla_line;

/* A landing `parts` parts further, at a request. In one word, so that a jump is one load. */
typedef uint32_t cgr__flashmla_jump;
CGR__FLASHMLA_FN cgr__flashmla_jump cgr__flashmla_pack(int32_t request, int32_t parts) {
  return (uint32_t)request << 16 | (uint32_t)parts;
}
CGR__FLASHMLA_FN int32_t cgr__flashmla_jump_request(cgr__flashmla_jump j) { return (int32_t)(j >> 16); }
CGR__FLASHMLA_FN int32_t cgr__flashmla_jump_parts(cgr__flashmla_jump j) { return (int32_t)(j & 0xffff); }

/* n / d by a multiplication, `inverse` being ~0u / d; n is below 2^31, and the estimate at most one too small. */
CGR__FLASHMLA_FN uint32_t cgr__flashmla_divide(uint32_t n, uint32_t d, uint32_t inverse) {
#ifdef __CUDA_ARCH__
  uint32_t quotient = __umulhi(n, inverse);
#else
  uint32_t quotient = (uint32_t)((uint64_t)n * inverse >> 32);
#endif
  return quotient + (n - quotient * d >= d);
}

CGR__FLASHMLA_FN uint32_t cgr__flashmla_residue(const cgr__flashmla_line *l, uint32_t n) {
  return n - cgr__flashmla_divide(n, (uint32_t)l->quota, l->inverse) * (uint32_t)l->quota;
}

/* The set of a residue, which may be up to c above Q. */
CGR__FLASHMLA_FN int32_t cgr__flashmla_set(const cgr__flashmla_line *l, uint32_t residue) {
  return (int32_t)(cgr__flashmla_divide(residue, (uint32_t)l->overhead + 1, l->inverse_width) & (uint32_t)(l->marks.sets - 1));
}

CGR__FLASHMLA_FN void cgr__flashmla_put(const cgr__flashmla_line *l, int32_t set, int32_t j) {
  CGR__FLASHMLA_OR(l->bits[set * l->marks.words + (j >> 5)], 1u << (j & 31));
  CGR__FLASHMLA_OR(l->summary[set * l->marks.summary_words + (j >> 10)], 1u << (j >> 5 & 31));
}

/* Marks request j. Residues wrap at Q: those below c are marked a second time above it. */
CGR__FLASHMLA_FN void cgr__flashmla_mark(const cgr__flashmla_line *l, int32_t j) {
  uint32_t residue = cgr__flashmla_residue(l, (uint32_t)l->start[j]);
  cgr__flashmla_put(l, cgr__flashmla_set(l, residue), j);
  if (residue < (uint32_t)l->overhead)
    cgr__flashmla_put(l, cgr__flashmla_set(l, residue + (uint32_t)l->quota), j);
}

/* The first request at or after `from` in one of two sets, given as their places; num_live or more: none. */
CGR__FLASHMLA_FN int32_t cgr__flashmla_candidate(const cgr__flashmla_line *l, int32_t set0, int32_t set1, int32_t from) {
  const uint32_t *bits0 = l->bits + set0 * l->marks.words, *bits1 = l->bits + set1 * l->marks.words;
  const uint32_t *summary0 = l->summary + set0 * l->marks.summary_words, *summary1 = l->summary + set1 * l->marks.summary_words;
  int32_t word = from >> 5;
  uint32_t found = (bits0[word] | bits1[word]) & ~0u << (from & 31);
  if (found)
    return word * 32 + CGR__FLASHMLA_LOWEST(found);
  word += 1;
  uint32_t mask = ~0u << (word & 31);
  for (int32_t s = word >> 5; s < l->marks.summary_words; s++, mask = ~0u) {
    found = (summary0[s] | summary1[s]) & mask;
    if (!found)
      continue;
    word = s * 32 + CGR__FLASHMLA_LOWEST(found);
    return word * 32 + CGR__FLASHMLA_LOWEST(bits0[word] | bits1[word]);
  }
  return l->num_live;
}

/* The jump from request i, all others being marked; from the end it leads nowhere. */
CGR__FLASHMLA_FN cgr__flashmla_jump cgr__flashmla_first_jump(const cgr__flashmla_line *l, int32_t i) {
  if (i >= l->num_live)
    return cgr__flashmla_pack(l->num_live, 0);
  uint32_t start = (uint32_t)l->start[i], residue = cgr__flashmla_residue(l, start);
  int32_t j = i + 1;
  if (l->quota > l->overhead) {
    int32_t set0 = cgr__flashmla_set(l, residue), set1 = cgr__flashmla_set(l, residue + (uint32_t)l->overhead);
    while (j < l->num_live && (j = cgr__flashmla_candidate(l, set0, set1, j)) < l->num_live &&
           cgr__flashmla_residue(l, (uint32_t)l->start[j] - start) > (uint32_t)l->overhead)
      j++;
  }
  j = cgr__flashmla_min(j, l->num_live);
  uint32_t way = (uint32_t)(l->start[j] - l->start[i] - l->overhead + l->quota - 1);
  return cgr__flashmla_pack(j, (int32_t)cgr__flashmla_divide(way, (uint32_t)l->quota, l->inverse));
}

/* First `a`, then what `jumps` has for where it lands. */
CGR__FLASHMLA_FN cgr__flashmla_jump cgr__flashmla_then(cgr__flashmla_jump a, const cgr__flashmla_jump *jumps) {
  cgr__flashmla_jump b = jumps[cgr__flashmla_jump_request(a)];
  return cgr__flashmla_pack(cgr__flashmla_jump_request(b), cgr__flashmla_jump_parts(a) + cgr__flashmla_jump_parts(b));
}

/* Where part p begins: [count] landings, the first of them request 0 at part 0. */
CGR__FLASHMLA_FN int32_t cgr__flashmla_locate(const cgr__flashmla_line *l, const cgr__flashmla_jump *landings, int32_t count,
                                              int32_t p, cgr__flashmla_point *point) {
  int32_t low = 0, high = count; /* the last landing at or before p */
  while (high - low > 1) {
    int32_t middle = (low + high) >> 1;
    if (cgr__flashmla_jump_parts(landings[middle]) <= p)
      low = middle;
    else
      high = middle;
  }
  int32_t request = cgr__flashmla_jump_request(landings[low]), steps = p - cgr__flashmla_jump_parts(landings[low]);
  int32_t x = l->start[request];
  if (steps > 0 && request < l->num_live) {
    x += steps * l->quota;
    int32_t above = l->num_live;
    while (above - request > 1) {
      int32_t middle = (request + above) >> 1;
      if (l->start[middle] <= x)
        request = middle;
      else
        above = middle;
    }
  }
  point->request = request;
  point->block = x - l->start[request];
  return x;
}

#endif
