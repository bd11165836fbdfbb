#include "kernels/gpu/sampling.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/error.h"
#include "device_array.h"
#include "sampling/sampler.h"

namespace lapidary::gpu {
namespace {

using testing::DeviceArray;

class GpuSamplingTest : public testing::GpuTest {};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(size_t count, unsigned seed, float scale) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

// One row: what the host's sampler is given.
struct Row {
  SamplingParams params;
  std::vector<int32_t> prompt, answer;
  std::vector<float> logits;
};

SamplingParams Params(double temperature, int64_t top_k, double top_p, double min_p = 0.0, uint64_t seed = 0) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  params.seed = seed;
  return params;
}

Row MakeRow(std::vector<float> logits, const SamplingParams& params = {}) {
  Row row;
  row.params = params;
  row.logits = std::move(logits);
  return row;
}

// What a backend keeps on the device for a row, appended to the arrays.
struct DeviceLists {
  std::vector<SamplingRow> rows;
  std::vector<int32_t> suppress;
  std::vector<TokenBias> bias;
  std::vector<TouchedToken> touched;

  void Append(const Row& row) {
    const SamplingParams& p = row.params;
    SamplingRow out{.temperature = p.temperature,
                    .top_p = p.top_p,
                    .min_logit = p.min_p > 0 ? p.temperature * std::log(p.min_p) : -HUGE_VAL,
                    .repetition_penalty = p.repetition_penalty,
                    .presence_penalty = p.presence_penalty,
                    .frequency_penalty = p.frequency_penalty,
                    .seed = p.seed,
                    .draw = row.answer.size(),
                    .top_k = static_cast<int32_t>(p.top_k)};
    out.suppress_begin = static_cast<int32_t>(suppress.size());
    suppress.insert(suppress.end(), p.suppress_tokens.begin(), p.suppress_tokens.end());
    out.suppress_end = static_cast<int32_t>(suppress.size());
    out.bias_begin = static_cast<int32_t>(bias.size());
    for (const auto& [id, value] : p.logit_bias) bias.push_back({id, static_cast<float>(value)});
    out.bias_end = static_cast<int32_t>(bias.size());
    out.touched_begin = static_cast<int32_t>(touched.size());
    Touch(row, out.touched_begin);
    out.touched_end = static_cast<int32_t>(touched.size());
    rows.push_back(out);
  }

 private:
  void Touch(const Row& row, int32_t begin) {
    const bool counts = row.params.presence_penalty != 0 || row.params.frequency_penalty != 0;
    const bool sees = row.params.repetition_penalty != 1;
    const auto entry = [&](int32_t id) -> TouchedToken& {
      for (size_t i = static_cast<size_t>(begin); i < touched.size(); ++i) {
        if (touched[i].id == id) return touched[i];
      }
      return touched.emplace_back(TouchedToken{id, 0, 0});
    };
    for (const int32_t id : row.prompt) {
      if (sees) entry(id).seen = 1;
    }
    for (const int32_t id : row.answer) {
      if (sees) entry(id).seen = 1;
      if (counts) ++entry(id).answer_count;
    }
  }
};

template <typename T>
DeviceArray<T> OnDevice(std::vector<T> values) {
  if (values.empty()) values.resize(1);
  return DeviceArray<T>(values);
}

struct Result {
  std::vector<int32_t> ids;
  std::vector<float> logits;
};

// All rows on the device at once.
Result OnDevice(const std::vector<Row>& rows, bool give_maxima = false) {
  const size_t vocab = rows[0].logits.size(), stride = vocab + 3;
  DeviceLists lists;
  std::vector<float> logits(rows.size() * stride, 1e30f);
  for (size_t r = 0; r < rows.size(); ++r) {
    lists.Append(rows[r]);
    std::copy(rows[r].logits.begin(), rows[r].logits.end(), logits.begin() + static_cast<ptrdiff_t>(r * stride));
  }
  const int max_rows = static_cast<int>(rows.size()) + 1;
  const auto memory = OnDevice(logits);
  const auto count = OnDevice(std::vector<int32_t>{static_cast<int32_t>(rows.size())});
  const auto row_params = OnDevice(lists.rows);
  const auto suppress = OnDevice(lists.suppress);
  const auto bias = OnDevice(lists.bias);
  const auto touched = OnDevice(lists.touched);
  const DeviceArray<unsigned char> workspace(SampleWorkspaceBytes(static_cast<int64_t>(vocab), max_rows));
  const DeviceArray<float> maxima(static_cast<size_t>(MaximaGroups(static_cast<int64_t>(vocab)) * max_rows));
  const DeviceArray<int32_t> ids(rows.size());
  const LogitsView view{memory.data(), static_cast<int64_t>(stride), static_cast<int64_t>(vocab), count.data()};
  if (give_maxima) GroupMaxima(gpuStream{}, view, max_rows, maxima.data(), false);
  Sample(gpuStream{},
         {.logits = view,
          .rows = row_params.data(),
          .suppress = suppress.data(),
          .bias = bias.data(),
          .touched = touched.data(),
          .maxima = give_maxima ? maxima.data() : nullptr,
          .workspace = workspace.data(),
          .ids = ids.data()},
         max_rows, give_maxima);
  Synchronize(gpuStream{});
  return {ids.ToHost(), memory.ToHost()};
}

// Compares with the host's sampler: ids, and the logits as they were changed.
void ExpectAsOnHost(const std::vector<Row>& rows) {
  const Result found = OnDevice(rows);
  const size_t vocab = rows[0].logits.size();
  for (size_t r = 0; r < rows.size(); ++r) {
    Sampler sampler(rows[r].params, rows[r].prompt, static_cast<int64_t>(vocab));
    for (const int32_t id : rows[r].answer) sampler.Accept(id);
    std::vector<float> logits = rows[r].logits;
    EXPECT_EQ(found.ids[r], sampler.Choose(logits)) << "row " << r;
    EXPECT_EQ(std::memcmp(logits.data(), found.logits.data() + r * (vocab + 3), vocab * sizeof(float)), 0)
        << "row " << r;
  }
}

std::vector<int32_t> ArgmaxOnDevice(const std::vector<std::vector<float>>& rows) {
  const size_t vocab = rows[0].size();
  std::vector<float> logits;
  for (const auto& row : rows) logits.insert(logits.end(), row.begin(), row.end());
  const int max_rows = static_cast<int>(rows.size()) + 2;
  const DeviceArray<float> memory(logits),
      maxima(static_cast<size_t>(MaximaGroups(static_cast<int64_t>(vocab)) * max_rows));
  const DeviceArray<int32_t> count(std::vector<int32_t>{static_cast<int32_t>(rows.size())}), ids(rows.size());
  const LogitsView view{memory.data(), static_cast<int64_t>(vocab), static_cast<int64_t>(vocab), count.data()};
  GroupMaxima(gpuStream{}, view, max_rows, maxima.data(), false);
  Argmax(gpuStream{}, view, maxima.data(), max_rows, ids.data(), true);
  Synchronize(gpuStream{});
  return ids.ToHost();
}

TEST_F(GpuSamplingTest, ArgmaxIsTheHosts) {
  for (const size_t vocab : {1u, 31u, 256u, 257u, 5000u, 262144u}) {
    std::vector<std::vector<float>> rows;
    for (unsigned seed = 0; seed < 3; ++seed) rows.push_back(RandomLogits(vocab, seed, 3.0f));
    for (float& x : rows[1]) x = std::round(x);  // many equal ones
    for (size_t i = 0; i < vocab; i += 3) rows[2][i] = kNan;
    const std::vector<int32_t> found = ArgmaxOnDevice(rows);
    for (size_t r = 0; r < rows.size(); ++r) EXPECT_EQ(found[r], lapidary::Argmax(rows[r])) << vocab << " row " << r;
  }
}

TEST_F(GpuSamplingTest, ArgmaxOfNothing) {
  EXPECT_THAT(ArgmaxOnDevice({std::vector<float>(600, kNan), std::vector<float>(600, -kInfinity)}),
              ::testing::ElementsAre(0, 0));
}

TEST_F(GpuSamplingTest, ZerosOfEitherSignAreEqual) {
  std::vector<float> x(300, -1.0f);
  x[7] = -0.0f;
  x[290] = 0.0f;
  EXPECT_THAT(ArgmaxOnDevice({x}), ::testing::ElementsAre(7));
}

TEST_F(GpuSamplingTest, GreedyWithPenaltiesBiasAndSuppression) {
  std::vector<Row> rows;
  for (unsigned seed = 0; seed < 6; ++seed) {
    Row row = MakeRow(RandomLogits(3000, seed, 2.0f));
    const auto best = [&] { return lapidary::Argmax(row.logits); };
    row.prompt = {1, 2, 3, best(), 2};
    row.answer = {5, best(), 9, 5};
    row.params.repetition_penalty = seed % 2 == 0 ? 1.0 : 1.37;
    row.params.presence_penalty = seed % 3 == 0 ? 0.0 : 0.7;
    row.params.frequency_penalty = seed < 3 ? 0.3 : 0.0;
    row.params.logit_bias = {{17, 1.3}, {best(), -0.1}, {17, 2.7e-5}, {2999, 5.5}};
    if (seed % 2 == 1) row.params.suppress_tokens = {best(), 17, 2999};
    rows.push_back(std::move(row));
  }
  ExpectAsOnHost(rows);
}

// Every way to draw, several draws of each.
TEST_F(GpuSamplingTest, DrawsAreTheHosts) {
  const std::vector<SamplingParams> ways{Params(1.0, 64, 0.95),     Params(1.0, 64, 1.0),      Params(0.7, 1, 1.0),
                                         Params(1.3, 40, 0.5, 0.1), Params(1.0, 0, 0.9),       Params(1.0, 0, 0.9, 0.2),
                                         Params(1.0, 0, 1.0),       Params(1.0, 0, 1.0, 0.05), Params(0.01, 0, 1.0),
                                         Params(5.0, 0, 0.999),     Params(2.0, 1500, 0.99)};
  std::vector<Row> rows;
  for (size_t way = 0; way < ways.size(); ++way) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      Row row = MakeRow(RandomLogits(2100, static_cast<unsigned>(way), 3.0f), ways[way]);
      row.params.seed = seed;
      row.answer.assign(seed, 3);
      row.params.repetition_penalty = 1.1;
      row.params.suppress_tokens = {4};
      rows.push_back(std::move(row));
    }
  }
  ExpectAsOnHost(rows);
}

// More candidates than are listed at once.
TEST_F(GpuSamplingTest, ManyCandidates) {
  std::vector<Row> rows;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    for (const auto& [top_k, top_p] : {std::pair<int64_t, double>{0, 0.97}, {9000, 1.0}, {9000, 0.9}, {0, 1.0}}) {
      rows.push_back(
          MakeRow(RandomLogits(20000, static_cast<unsigned>(seed), 0.5f), Params(1.5, top_k, top_p, 0.0, seed)));
    }
  }
  ExpectAsOnHost(rows);
}

// Equal logits are told apart by their ids alone.
TEST_F(GpuSamplingTest, EqualLogits) {
  std::vector<Row> rows;
  for (const auto& [top_k, top_p] : {std::pair<int64_t, double>{10, 1.0}, {5000, 1.0}, {0, 0.5}, {0, 1.0}}) {
    for (uint64_t seed = 0; seed < 2; ++seed) {
      rows.push_back(MakeRow(std::vector<float>(10000, 2.5f), Params(1.0, top_k, top_p, 0.0, seed)));
    }
  }
  ExpectAsOnHost(rows);
}

TEST_F(GpuSamplingTest, FewCandidatesAreLeft) {
  std::vector<float> logits(1000, -kInfinity);
  logits[3] = 1.0f;
  logits[700] = 0.5f;
  std::vector<Row> rows;
  for (const int64_t top_k : {0, 1, 50}) {
    for (const double top_p : {0.3, 0.99, 1.0}) {
      rows.push_back(MakeRow(logits, Params(1.0, top_k, top_p, top_k == 1 ? 1.0 : 0.0, 5)));
    }
  }
  ExpectAsOnHost(rows);
}

TEST_F(GpuSamplingTest, MaximaMayBeGiven) {
  std::vector<Row> rows;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    rows.push_back(MakeRow(RandomLogits(4000, static_cast<unsigned>(seed), 2.0f),
                           Params(seed < 2 ? 0.0 : 1.0, 20, 0.9, 0.0, seed)));
  }
  EXPECT_EQ(OnDevice(rows, true).ids, OnDevice(rows, false).ids);
}

// The frequencies of many draws are the probabilities.
TEST_F(GpuSamplingTest, DrawsFollowTheWeights) {
  std::vector<Row> rows;
  for (uint64_t draw = 0; draw < 400; ++draw) {
    rows.push_back(MakeRow({0.0f, std::log(2.0f), -kInfinity, std::log(5.0f)}, Params(1.0, 0, 1.0, 0.0, draw)));
  }
  std::vector<int> counts(4);
  for (const int32_t id : OnDevice(rows).ids) ++counts[static_cast<size_t>(id)];
  EXPECT_EQ(counts[2], 0);
  EXPECT_NEAR(counts[0], 50, 30);
  EXPECT_NEAR(counts[1], 100, 40);
  EXPECT_NEAR(counts[3], 250, 50);
}

TEST_F(GpuSamplingTest, RefusesALargerVocabulary) {
  try {
    SampleWorkspaceBytes(kMaxVocab + 1, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("found 262145 tokens"));
  }
}

}  // namespace
}  // namespace lapidary::gpu
