// Instead of GoogleTest's: without a GPU every test is skipped, before any of its members asks for device memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "kernels/gpu/runtime.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  std::string why;
  if (!GTEST_FLAG_GET(list_tests) && !lapidary::gpu::FindDevice(&why)) {
    std::printf("[  SKIPPED ] %s\n", why.c_str());
    return 0;
  }
  return RUN_ALL_TESTS();
}
