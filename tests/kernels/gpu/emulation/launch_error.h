#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {

// The message of the launch's kDevice error; empty without one.
template <typename Kernel, typename... Arguments>
std::string LaunchError(Kernel* kernel, const LaunchShape& shape, Arguments... arguments) {
  try {
    Launch("Launcher", kernel, shape, gpuStream{}, arguments...);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDevice);
    return error.what();
  }
  return "";
}

}  // namespace lapidary::gpu
