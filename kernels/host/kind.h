/* Numbers of the host's attention, for the registry. */
#ifndef CGR_KERNELS_HOST_KIND_H
#define CGR_KERNELS_HOST_KIND_H

#define CGR__HOST_TILE_LINES 64 /* (token, head) pairs of a q tile */
#define CGR__HOST_TILE_KV 64    /* tokens of a KV tile */
#define CGR__HOST_MAX_HEAD_DIM 256

#endif
