/* The lists that an audit reads. Cold. */
#include "graphs/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

static bool add_node(cgr__words *words, const cgr__node_param *param) {
  void *nodes = words->node;
  if (!cgr__reserve(&nodes, &words->node_capacity, words->num_nodes, sizeof *words->node))
    return false;
  words->node = nodes;
  cgr__node *node = &words->node[words->num_nodes++];
  node->id = cgr__hash(CGR__HASH_BEGIN, param->name, strlen(param->name));
  snprintf(node->name, sizeof node->name, "%s", param->name);
  words->num_hidden += param->hidden;
  words->shape = cgr__hash(words->shape, &node->id, sizeof node->id);
  return true;
}

void cgr__words_begin(cgr__words *words) {
  words->first_node = words->num_nodes;
  words->shape = cgr__hash(words->shape, &words->num_nodes, sizeof words->num_nodes);
}

int cgr__words_add(cgr__words *words, const cgr__node_param *param) {
  const uint64_t shape[] = { (uint64_t)param->index, param->bytes };
  if (words->first_node + param->node >= words->num_nodes && !add_node(words, param))
    return CGR__DEVICE_NO_MEMORY;
  words->shape = cgr__hash(words->shape, shape, sizeof shape);
  for (size_t at = 0; at < param->bytes; at += sizeof(uint64_t)) {
    size_t left = param->bytes - at;
    cgr__word word = { .node = words->num_nodes - 1, .param = param->index, .offset = (int32_t)at };
    memcpy(&word.value, (const unsigned char *)param->data + at, left < sizeof word.value ? left : sizeof word.value);
    void *all = words->word;
    if (!cgr__reserve(&all, &words->capacity, words->count, sizeof word))
      return CGR__DEVICE_NO_MEMORY;
    words->word = all;
    words->word[words->count++] = word;
  }
  return CGR__DEVICE_OK;
}

void cgr__words_empty(cgr__words *words) {
  words->count = 0;
  words->num_nodes = words->num_hidden = words->first_node = 0;
  words->shape = CGR__HASH_BEGIN;
  free(words->held.region);
  words->held = (cgr__held){ false, 0, NULL };
}

void cgr__words_free(cgr__words *words) {
  cgr__words_empty(words);
  free(words->node);
  free(words->word);
}
