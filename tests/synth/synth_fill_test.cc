#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "synth/synth.h"

namespace lapidary {
namespace {

// The rule as it is written down, one element at a time.
BF16 Element(const std::string& name, float mean, float amp, uint64_t index) {
  uint64_t z = 0xCBF29CE484222325u;
  for (const char c : name) z = (z ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  z += (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  const double u = std::ldexp(static_cast<double>(z >> 40), -23) - 1.0;
  const auto product = static_cast<float>(static_cast<double>(amp) * u);  // exact in double, then rounded once
  return ToBF16(static_cast<float>(static_cast<double>(mean) + static_cast<double>(product)));
}

TEST(SynthFillTest, FollowsTheRuleAtEveryOffsetAndLength) {
  for (const size_t count : {0u, 1u, 7u, 1023u, 1024u, 1025u, 5000u}) {
    for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{4'194'304}, int64_t{2'348'810'240}}) {
      std::vector<BF16> out(count + 1, BF16{0x1234});
      SynthFill("model.language_model.layers.3.mlp.up_proj.weight", 0.9f, 0.1f, first, std::span(out).first(count));
      for (size_t i = 0; i < count; ++i) {
        const BF16 wanted =
            Element("model.language_model.layers.3.mlp.up_proj.weight", 0.9f, 0.1f, static_cast<uint64_t>(first) + i);
        ASSERT_EQ(out[i].bits, wanted.bits) << first << " + " << i;
      }
      EXPECT_EQ(out[count].bits, 0x1234) << "wrote past the end";
    }
  }
}

TEST(SynthFillTest, PiecesJoinToTheWhole) {
  std::vector<BF16> whole(3000), pieces(3000);
  SynthFill("a", 0.0f, 1.0f, 10, whole);
  SynthFill("a", 0.0f, 1.0f, 10, std::span(pieces).first(1111));
  SynthFill("a", 0.0f, 1.0f, 1121, std::span(pieces).subspan(1111));
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(whole[i].bits, pieces[i].bits) << i;
}

}  // namespace
}  // namespace lapidary
