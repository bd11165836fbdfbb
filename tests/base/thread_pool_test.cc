#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace lapidary {
namespace {

TEST(ThreadPoolTest, RunsEveryThreadOnceARound) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    std::vector<int> rounds(static_cast<size_t>(threads), 0);
    for (int round = 0; round < 200; ++round) {
      pool.Run([&](int thread) { ++rounds[static_cast<size_t>(thread)]; });
      // Everything a round wrote is visible to the caller, and nothing of it runs on.
      for (const int done : rounds) ASSERT_EQ(done, round + 1);
    }
  }
}

TEST(ThreadPoolTest, ThreadZeroIsTheCaller) {
  ThreadPool pool(3);
  std::vector<std::thread::id> ids(3);
  pool.Run([&](int thread) { ids[static_cast<size_t>(thread)] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), 3u);
}

TEST(ThreadPoolTest, PartsCoverTheWorkInOrderAndKeepTheGrain) {
  for (const size_t count : {0u, 1u, 5u, 64u, 100u, 1000u}) {
    for (const size_t grain : {1u, 4u, 64u, 2000u}) {
      for (const int threads : {1, 2, 3, 8}) {
        size_t next = 0, largest = 0, smallest = count;
        for (int thread = 0; thread < threads; ++thread) {
          const auto [begin, end] = ThreadPool::Part(count, grain, thread, threads);
          ASSERT_EQ(begin, next);
          ASSERT_LE(begin, end);
          ASSERT_TRUE(end % grain == 0 || end == count);
          next = end;
          largest = std::max(largest, end - begin);
          smallest = std::min(smallest, end - begin);
        }
        ASSERT_EQ(next, count);
        ASSERT_LE(largest - smallest, 2 * grain);
      }
    }
  }
}

TEST(ThreadPoolTest, ParallelForVisitsEachIndexOnce) {
  ThreadPool pool(3);
  std::vector<int> visits(1001, 0);
  pool.ParallelFor(visits.size(), 16, [&](size_t begin, size_t end, int thread) {
    EXPECT_EQ(ThreadPool::Part(1001, 16, thread, 3), std::pair(begin, end));
    for (size_t i = begin; i < end; ++i) ++visits[i];
  });
  EXPECT_EQ(std::accumulate(visits.begin(), visits.end(), 0), 1001);
  EXPECT_EQ(*std::max_element(visits.begin(), visits.end()), 1);
  pool.ParallelFor(0, 16, [&](size_t, size_t, int) { ADD_FAILURE() << "no work to do"; });
}

TEST(ThreadPoolTest, AbsurdThreadCountsAreErrors) {
  for (const int threads : {0, -1, 4097}) {
    try {
      ThreadPool pool(threads);
      ADD_FAILURE() << threads;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(std::to_string(threads)), std::string::npos);
    }
  }
}

TEST(ThreadPoolTest, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

TEST(ThreadPoolTest, DefaultThreadsFitTheMachine) {
  EXPECT_GE(ThreadPool::DefaultThreads(), 1);
  EXPECT_LE(ThreadPool::DefaultThreads(), static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
}

}  // namespace
}  // namespace lapidary
