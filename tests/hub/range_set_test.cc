#include "hub/range_set.h"

#include <gmock/gmock.h>

namespace lapidary {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RangeSet, MergesOverlappingAndTouchingRanges) {
  RangeSet set;
  set.Add({10, 20});
  set.Add({30, 40});
  set.Add({20, 25});
  EXPECT_THAT(set.Ranges(), ElementsAre(ByteRange{10, 25}, ByteRange{30, 40}));
  set.Add({5, 35});
  EXPECT_THAT(set.Ranges(), ElementsAre(ByteRange{5, 40}));
  set.Add({6, 7});
  set.Add({8, 8});
  EXPECT_THAT(set.Ranges(), ElementsAre(ByteRange{5, 40}));
  EXPECT_EQ(set.CoveredBytes(), 35);
}

TEST(RangeSet, MissingIsTheComplement) {
  RangeSet set;
  EXPECT_THAT(set.Missing(10), ElementsAre(ByteRange{0, 10}));
  EXPECT_THAT(set.Missing(0), IsEmpty());
  set.Add({2, 4});
  set.Add({6, 10});
  EXPECT_THAT(set.Missing(10), ElementsAre(ByteRange{0, 2}, ByteRange{4, 6}));
  EXPECT_THAT(set.Missing(12), ElementsAre(ByteRange{0, 2}, ByteRange{4, 6}, ByteRange{10, 12}));
  set.Clear();
  EXPECT_THAT(set.Missing(3), ElementsAre(ByteRange{0, 3}));
}

}  // namespace
}  // namespace lapidary
