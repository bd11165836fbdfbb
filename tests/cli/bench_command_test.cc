// lapidary bench, on a tiny checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>

#include "base/json.h"
#include "run_program.h"

namespace lapidary {
namespace {

TEST(BenchCommand, JsonHasEveryFieldOfTheContract) {
  const ProgramResult result = RunProgram({"bench", "-m", DataFolder("e2b-mini"), "-p", "20,40", "-n", "5", "-b", "1,3",
                                           "--depth", "30", "--reps", "1", "--threads", "1", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const Json json = ParseJson(result.out, "bench");
  EXPECT_EQ(json["model"], DataFolder("e2b-mini"));
  EXPECT_TRUE(json["device"].is_string());
  EXPECT_EQ(json["threads"], 1);
  for (const char* key : {"read_bandwidth_gb_s", "peak_gflop_s", "load_s"})
    EXPECT_GT(json[key].get<double>(), 0) << key;
  ASSERT_EQ(json["results"].size(), 4u);
  for (const Json& r : json["results"]) {
    EXPECT_EQ(r["depth"], 30);
    for (const char* key : {"seconds", "tokens_per_s", "ms_per_step", "weight_bytes_per_step", "weight_gb_s"}) {
      EXPECT_GT(r[key].get<double>(), 0) << key;
    }
    const bool decode = r["test"] == "decode";
    EXPECT_GT(r[decode ? "bandwidth_share" : "compute_share"].get<double>(), 0);
    EXPECT_TRUE(r[decode ? "compute_share" : "bandwidth_share"].is_null());
    ASSERT_EQ(r["reps"].size(), 1u);
    EXPECT_EQ(r["reps"][0]["seconds"], r["seconds"]);
    const double bandwidth = r["reps"][0]["read_bandwidth_gb_s"].get<double>();
    if (decode) {
      EXPECT_NEAR(r["bandwidth_share"].get<double>() * bandwidth, r["weight_gb_s"].get<double>(), 1e-6);
    }
    EXPECT_NEAR(r["tokens_per_s"].get<double>() * r["seconds"].get<double>(),
                r["tokens"].get<double>() * r["batch"].get<double>(), 1e-6);
  }
  EXPECT_EQ(json["results"][1]["tokens"], 40);
  EXPECT_EQ(json["results"][3]["batch"], 3);
}

TEST(BenchCommand, SaysWhereNoKernelTimesAre) {
  const std::vector<std::string> flags = {
      "bench", "-m",       DataFolder("e2b-mini"), "-p", "0", "-n", "2", "-b", "1", "--reps", "1", "--threads",
      "1",     "--kernels"};
  const ProgramResult text = RunProgram(flags);
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, testing::HasSubstr("no kernel times"));
  EXPECT_THAT(text.out, testing::Not(testing::HasSubstr("device memory")));
  std::vector<std::string> json_flags = flags;
  json_flags.push_back("--json");
  const Json json = ParseJson(RunProgram(json_flags).out, "bench");
  EXPECT_TRUE(json["results"][0]["kernels"].empty());
  EXPECT_TRUE(json["device_memory"].is_null());
  EXPECT_EQ(json["peak_of"], "float32 FMA");
}

TEST(BenchCommand, RefusesWhatCannotBeMeasured) {
  const std::string mini = DataFolder("e2b-mini");
  ExpectError(RunProgram({"bench", "-m", mini, "-p", "x"}), 2, "-p");
  ExpectError(RunProgram({"bench", "-m", mini, "-b", "0"}), 2, "-b");
  ExpectError(RunProgram({"bench", "-m", mini, "-p", "0", "-n", "0"}), 1, "no test");
  ExpectError(RunProgram({"bench", "-m", mini, "-p", "16", "-n", "1", "--depth", "5000"}), 1, "4096");
  ExpectError(RunProgram({"bench", "-m", mini, "-p", "0", "-n", "1", "-b", "100000"}), 1, "-b");
}

// Ctrl-C is noticed between two steps, so long before the test is over.
TEST(BenchCommand, EndsAtCtrlC) {
  const std::string line = std::string("timeout --preserve-status -s INT 2 ") + LAPIDARY_PROGRAM + " bench -m " +
                           DataFolder("e2b-mini") + " -p 0 -n 4000 --reps 1000 --threads 1 2>&1";
  std::FILE* program = popen(line.c_str(), "r");
  ASSERT_NE(program, nullptr);
  char text[200] = "";
  EXPECT_NE(std::fgets(text, sizeof(text), program), nullptr);
  EXPECT_STREQ(text, "lapidary: interrupted\n");
  EXPECT_EQ(std::fgets(text, sizeof(text), program), nullptr) << text;
  EXPECT_EQ(WEXITSTATUS(pclose(program)), 1);
}

}  // namespace
}  // namespace lapidary
