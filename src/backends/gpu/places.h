#pragma once

#include <string>

namespace lapidary::gpu {

// Where in a step a value was found that is not finite; 0: nowhere. Rising in the order of the step.
inline constexpr int kPlaceEmbedding = 1;
constexpr int PlaceOfLayer(int layer) { return layer + 2; }

inline std::string NameOfPlace(int place) {
  return place == kPlaceEmbedding ? "embed_tokens" : "layer " + std::to_string(place - 2);
}

}  // namespace lapidary::gpu
