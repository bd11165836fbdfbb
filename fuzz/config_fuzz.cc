#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "model/config.h"
#include "model/model_plan.h"
#include "model/model_weights.h"

// Any text either gives a config whose plan and weight shapes add up, or an Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const lapidary::Config config = lapidary::ParseConfig({reinterpret_cast<const char*>(data), size}, "fuzz");
    const lapidary::ModelPlan plan = lapidary::MakeModelPlan(config);
    int64_t elements = 0;
    for (const lapidary::WeightSpec& spec : lapidary::RequiredWeights(plan)) {
      int64_t product = 1;
      for (const int64_t dimension : spec.shape) {
        if (dimension < 1 || __builtin_mul_overflow(product, dimension, &product)) std::abort();
      }
      if (__builtin_add_overflow(elements, product, &elements)) std::abort();
    }
    if (elements > INT64_MAX / 4) std::abort();  // bytes as float32 fit as well
    for (const lapidary::LayerPlan& layer : plan.layers) {
      const lapidary::LayerPlan& source = plan.layers.at(static_cast<size_t>(layer.kv_source));
      if (!source.writes_kv || source.kv_slot != layer.kv_slot || source.head_dim != layer.head_dim ||
          source.kv_heads != layer.kv_heads || layer.rotary_pairs > layer.head_dim / 2) {
        std::abort();
      }
    }
  } catch (const lapidary::Error&) {
  }
  return 0;
}
