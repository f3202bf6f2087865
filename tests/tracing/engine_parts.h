// What the engines of these tests share.
#pragma once

#include <vector>

#include "cgr/cgr.h"

namespace cgr_test {

// Gives all layers to a backend of the engine's, its first one; NULL: they stay the library's. `layers` holds them.
inline void GiveLayersTo(const cgr_backend *backend, cgr_config *config, std::vector<cgr_layer> *layers) {
  if (!backend)
    return;
  layers->assign(config->layers, config->layers + config->num_layers);
  for (cgr_layer &layer : *layers)
    layer.backend = 1;
  config->layers = layers->data();
  config->backends = backend;
  config->num_backends = 1;
}

} // namespace cgr_test
