#include "checkpoint/tensor_index.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "checkpoint_files.h"

namespace lapidary {
namespace {

std::vector<StoredTensor> Parse(const std::string& file) {
  // A copy of the exact size, so that a sanitizer sees reads past the end.
  const std::vector<char> bytes(file.begin(), file.end());
  std::vector<StoredTensor> tensors = ParseSafetensors(std::as_bytes(std::span(bytes)), "f.safetensors");
  for (StoredTensor& tensor : tensors) tensor.bytes = tensor.bytes.first(0);  // the copy goes away
  return tensors;
}

TEST(ParseSafetensorsTest, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string file =
      SafetensorsFile(R"({"b":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"__metadata__":{"format":"pt"},)"
                      R"("a":{"dtype":"BF16","shape":[],"data_offsets":[8,10]},)"
                      R"("none":{"dtype":"I64","shape":[0,9223372036854775807,3],"data_offsets":[10,10]}}   )",
                      "01234567xy");
  const std::vector<StoredTensor> tensors = ParseSafetensors(std::as_bytes(std::span(file)), "f");
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "b");
  EXPECT_EQ(tensors[0].stored_type, "F32");
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensors[0].bytes.data()), tensors[0].bytes.size()), "01234567");
  EXPECT_EQ(tensors[0].elements(), 2);
  EXPECT_EQ(tensors[1].name, "a");
  EXPECT_EQ(tensors[1].elements(), 1);
  EXPECT_EQ(tensors[1].bytes.data(), tensors[0].bytes.data() + 8);
  EXPECT_EQ(tensors[2].elements(), 0);
}

TEST(ParseSafetensorsTest, KnowsTheTypesOfOtherPartsOfACheckpoint) {
  for (const auto& [type, shape, bytes] :
       {std::tuple("BOOL", "[3]", 3), std::tuple("F4", "[4]", 2), std::tuple("F6_E2M3", "[4]", 3),
        std::tuple("F8_E4M3", "[5]", 5), std::tuple("I16", "[2]", 4), std::tuple("U64", "[1]", 8),
        std::tuple("C64", "[2]", 16)}) {
    const std::string header = std::string(R"({"t":{"dtype":")") + type + R"(","shape":)" + shape +
                               R"(,"data_offsets":[0,)" + std::to_string(bytes) + "]}}";
    EXPECT_EQ(Parse(SafetensorsFile(header, std::string(static_cast<size_t>(bytes), 'x'))).size(), 1u) << type;
  }
}

TEST(ParseSafetensorsTest, AnEmptyHeaderIsAFileWithoutTensors) {
  EXPECT_TRUE(Parse(SafetensorsFile("{}", "")).empty());
}

struct BadFile {
  const char* name;
  std::string file;
  ErrorKind kind;
  std::vector<std::string> parts;
};

std::string One(const std::string& entry, const std::string& body = "0123") {
  return SafetensorsFile("{\"t\":" + entry + "}", body);
}

std::string WithLength(uint64_t length, const std::string& rest) {
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + rest;
}

std::vector<BadFile> BadFiles() {
  const ErrorKind corrupt = ErrorKind::kCorruptFile;
  const std::string deep(10'000, '['), second = R"("u":{"dtype":"U8","shape":[2],"data_offsets":)";
  return {
      {"empty", "", corrupt, {"found 0 bytes"}},
      {"short", "1234567", corrupt, {"found 7 bytes"}},
      {"length beyond the file", WithLength(100, "{}"), corrupt, {"header length of 100", "at most 2"}},
      {"absurd length", WithLength(~0ull, "{}"), corrupt, {"18446744073709551615"}},
      {"no header", WithLength(0, "{}"), corrupt, {"'{'"}},
      {"not JSON", SafetensorsFile("{]", ""), corrupt, {"not valid JSON"}},
      {"cut JSON", SafetensorsFile("{\"t\":", ""), corrupt, {"not valid JSON"}},
      {"an array", SafetensorsFile("[]", ""), corrupt, {"'{'"}},
      {"not UTF-8", SafetensorsFile("{\"\xff\":1}", ""), corrupt, {"not valid JSON"}},
      {"zero byte", SafetensorsFile(std::string("{\0}", 3), ""), corrupt, {"not valid JSON"}},
      {"deep", SafetensorsFile("{\"t\":" + deep, ""), corrupt, {"nested deeper than 128"}},
      {"name twice", SafetensorsFile(R"({"t":1,"t":2})", ""), corrupt, {"\"t\" twice"}},
      {"entry is a number", One("3"), corrupt, {"tensor \"t\"", "number"}},
      {"no dtype", One(R"({"shape":[4],"data_offsets":[0,4]})"), corrupt, {"no dtype"}},
      {"no shape", One(R"({"dtype":"U8","data_offsets":[0,4]})"), corrupt, {"no shape"}},
      {"no offsets", One(R"({"dtype":"U8","shape":[4]})"), corrupt, {"no data_offsets"}},
      {"dtype is a number", One(R"({"dtype":8,"shape":[4],"data_offsets":[0,4]})"), corrupt, {"dtype: found 8"}},
      {"unknown dtype", One(R"({"dtype":"Q4","shape":[4],"data_offsets":[0,4]})"), ErrorKind::kUnsupported, {"Q4"}},
      {"shape is text", One(R"({"dtype":"U8","shape":"4","data_offsets":[0,4]})"), corrupt, {"shape: found"}},
      {"negative size", One(R"({"dtype":"U8","shape":[-4],"data_offsets":[0,4]})"), corrupt, {"found -4"}},
      {"fraction", One(R"({"dtype":"U8","shape":[4.0],"data_offsets":[0,4]})"), corrupt, {"found 4.0"}},
      {"size beyond 64 bits",
       One(R"({"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,4]})"),
       corrupt,
       {}},
      {"product overflows to 4",
       One(R"({"dtype":"U8","shape":[4611686018427387905,4],"data_offsets":[0,4]})"),
       corrupt,
       {"found 4 bytes"}},
      {"bits overflow to 0",
       One(R"({"dtype":"U8","shape":[2305843009213693952,8],"data_offsets":[0,0]})", ""),
       corrupt,
       {"found 0 bytes"}},
      {"half a byte", One(R"({"dtype":"F4","shape":[7],"data_offsets":[0,4]})"), corrupt, {"found 4 bytes"}},
      {"wrong size",
       One(R"({"dtype":"BF16","shape":[3],"data_offsets":[0,4]})"),
       corrupt,
       {"found 4 bytes", "BF16 [3]"}},
      {"one offset", One(R"({"dtype":"U8","shape":[4],"data_offsets":[4]})"), corrupt, {"[begin, end]"}},
      {"backwards", One(R"({"dtype":"U8","shape":[4],"data_offsets":[4,0]})"), corrupt, {"found [4, 0]"}},
      {"negative offset", One(R"({"dtype":"U8","shape":[4],"data_offsets":[-4,0]})"), corrupt, {"found -4"}},
      {"leaves the file", One(R"({"dtype":"U8","shape":[5],"data_offsets":[0,5]})"), corrupt, {"the 4 bytes"}},
      {"gap in front", One(R"({"dtype":"U8","shape":[3],"data_offsets":[1,4]})"), corrupt, {"byte 1", "byte 0"}},
      {"bytes behind", One(R"({"dtype":"U8","shape":[3],"data_offsets":[0,3]})"), corrupt, {"found 4 bytes", "the 3"}},
      {"overlap", One(R"({"dtype":"U8","shape":[3],"data_offsets":[0,3]},)" + second + "[2,4]}"), corrupt, {"byte 2"}},
      {"same bytes",
       One(R"({"dtype":"U8","shape":[2],"data_offsets":[0,2]},)" + second + "[0,2]}"),
       corrupt,
       {"byte 0"}},
      {"gap between",
       One(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]},)" + second + "[2,4]}"),
       corrupt,
       {"byte 2"}},
      {"long name", SafetensorsFile("{\"" + std::string(100'000, 'n') + "\":1}", ""), corrupt, {"nnn..."}},
      {"control characters in a name", SafetensorsFile(R"({"a\nb\u0000":1})", ""), corrupt, {"a?b?"}},
  };
}

TEST(ParseSafetensorsTest, BadFilesGiveOneClearError) {
  for (const BadFile& bad : BadFiles()) {
    SCOPED_TRACE(bad.name);
    ExpectError(bad.kind, bad.parts, [&] { Parse(bad.file); });
  }
}

// Each cut and each single changed byte of a real header: an error or a result, never a crash.
TEST(ParseSafetensorsTest, SurvivesCutsAndChangedBytes) {
  const std::string file = One(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})");
  for (size_t length = 0; length < file.size(); ++length) {
    EXPECT_THROW(Parse(file.substr(0, length)), Error) << length;
  }
  for (size_t i = 0; i < file.size() - 4; ++i) {
    for (const char c : {'\0', '\xff', '"', '{', '9'}) {
      std::string changed = file;
      changed[i] = c;
      try {
        Parse(changed);
      } catch (const Error&) {
      }
    }
  }
}

TEST(TensorIndexTest, OpensOneFileAndShards) {
  const TensorIndex single = TensorIndex::Open(MiniFolder("e2b-mini"));
  EXPECT_EQ(single.files().size(), 1u);
  const StoredTensor* norm = single.Find("model.language_model.norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->shape, std::vector<int64_t>{96});
  EXPECT_EQ(single.Find("model.language_model.norm"), nullptr);

  TensorIndex sharded = TensorIndex::Open(MiniFolder("e4b-mini"));
  const TensorIndex moved = std::move(sharded);
  EXPECT_EQ(moved.files().size(), 2u);
  ASSERT_NE(moved.Find("model.norm.weight"), nullptr);
  for (const StoredTensor& tensor : moved.tensors()) {
    EXPECT_EQ(moved.Find(tensor.name), &tensor);
    const std::span<const std::byte> file = moved.files()[tensor.file].bytes();
    EXPECT_GE(tensor.bytes.data(), file.data());
    EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(), file.data() + file.size());
  }
}

TEST(TensorIndexTest, MissingFoldersFilesAndShards) {
  const TempFolder folder;
  ExpectError(ErrorKind::kNotFound, {"no such folder"}, [&] { TensorIndex::Open(folder.File("nowhere")); });
  ExpectError(ErrorKind::kNotFound, {folder.path(), "model.safetensors"}, [&] { TensorIndex::Open(folder.path()); });
  const std::string index = "model.safetensors.index.json";
  std::filesystem::copy(MiniFolder("e4b-mini") + "/" + index, folder.File(index));
  const std::string first = "model-00001-of-00002.safetensors", second = "model-00002-of-00002.safetensors";
  std::filesystem::copy(MiniFolder("e4b-mini") + "/" + first, folder.File(first));
  ExpectError(ErrorKind::kNotFound, {index, second, "missing"}, [&] { TensorIndex::Open(folder.path()); });
  // The right name, the wrong content: the index promises tensors that this shard lacks.
  std::filesystem::copy(MiniFolder("dense-mini") + "/model.safetensors", folder.File(second));
  ExpectError(ErrorKind::kCorruptFile, {"found it both in"}, [&] { TensorIndex::Open(folder.path()); });
  folder.Write(second, SafetensorsFile("{}", ""));
  ExpectError(ErrorKind::kCorruptFile, {index, "no shard", second}, [&] { TensorIndex::Open(folder.path()); });
  folder.Write(second, "cut");
  ExpectError(ErrorKind::kCorruptFile, {second, "found 3 bytes"}, [&] { TensorIndex::Open(folder.path()); });
}

TEST(TensorIndexTest, ATensorInAnotherShardThanListedIsAnError) {
  const TempFolder folder;
  const std::string one = SafetensorsFile(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x");
  const std::string two = SafetensorsFile(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x");
  folder.Write("1.safetensors", one);
  folder.Write("2.safetensors", two);
  folder.Write("model.safetensors.index.json", R"({"weight_map":{"a":"2.safetensors","b":"1.safetensors"}})");
  ExpectError(ErrorKind::kCorruptFile, {"tensor \"a\"", "1.safetensors", "2.safetensors"},
              [&] { TensorIndex::Open(folder.path()); });
}

TEST(TensorIndexTest, BadIndexFiles) {
  for (const auto& [text, part] : {
           std::pair<std::string, std::string>{"", "not valid JSON"},
           {"not JSON", "not valid JSON"},
           {std::string(10'000, '['), "nested deeper"},
           {"[]", "weight_map"},
           {"{}", "weight_map"},
           {R"({"weight_map":[]})", "weight_map"},
           {R"({"weight_map":{}})", "weight_map"},
           {R"({"weight_map":{"a":1}})", "tensor \"a\": found 1"},
           {R"({"weight_map":{"a":""}})", "tensor \"a\""},
           {R"({"weight_map":{"a":".."}})", "tensor \"a\""},
           {R"({"weight_map":{"a":"../secret.safetensors"}})", "../secret"},
           {R"({"weight_map":{"a":"/etc/passwd"}})", "/etc/passwd"},
           {R"({"weight_map":{"a":"x\u0000.safetensors"}})", "tensor \"a\""},
           {R"({"weight_map":{"a":"x","a":"y"}})", "twice"},
       }) {
    SCOPED_TRACE(text.substr(0, 60));
    const TempFolder folder;
    folder.Write("model.safetensors.index.json", text);
    ExpectError(ErrorKind::kCorruptFile, {"model.safetensors.index.json", part},
                [&] { TensorIndex::Open(folder.path()); });
  }
}

TEST(TensorIndexTest, ThingsThatAreNotFilesAreErrors) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.File("model.safetensors"));
  ExpectError(ErrorKind::kInvalidArgument, {"not a regular file"}, [&] { TensorIndex::Open(folder.path()); });
  std::filesystem::remove(folder.File("model.safetensors"));
  ASSERT_EQ(::mkfifo(folder.File("model.safetensors").c_str(), 0600), 0);
  ExpectError(ErrorKind::kInvalidArgument, {"not a regular file"}, [&] { TensorIndex::Open(folder.path()); });
  ExpectError(ErrorKind::kInvalidArgument, {"cannot open", "too long"},
              [&] { TensorIndex::Open(folder.File(std::string(300, 'n'))); });
}

}  // namespace
}  // namespace lapidary
