#include "kernels/gpu/emulation/fiber.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace lapidary::gpu::emulation {
namespace {

struct Relay {
  Fiber host;
  std::vector<Fiber*> fibers;
  std::string trail;
  size_t running = 0;
};

void PassOn(void* argument) {
  auto& relay = *static_cast<Relay*>(argument);
  const size_t self = relay.running;
  for (int round = 0;; ++round) {
    try {
      throw std::runtime_error(std::to_string(self));
    } catch (const std::exception& error) {
      relay.trail += error.what();
    }
    relay.trail += static_cast<char>('a' + round);
    const bool last = self + 1 == relay.fibers.size();
    relay.running = last ? 0 : self + 1;
    relay.fibers[self]->SwitchTo(last ? relay.host : *relay.fibers[self + 1]);
  }
}

TEST(Fiber, KeepsItsPlaceAndItsVariables) {
  Relay relay;
  Fiber a(&PassOn, &relay), b(&PassOn, &relay), c(&PassOn, &relay);
  relay.fibers = {&a, &b, &c};
  for (int round = 0; round < 3; ++round) relay.host.SwitchTo(a);
  EXPECT_EQ(relay.trail, "0a1a2a0b1b2b0c1c2c");
}

}  // namespace
}  // namespace lapidary::gpu::emulation
