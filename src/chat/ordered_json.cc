#include "chat/ordered_json.h"

#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace lapidary {
namespace {

// Builds the tree by appending. The library's own builder looks through all keys of an object for each new one.
class TreeBuilder {
 public:
  explicit TreeBuilder(const std::string& what) : what_(what) {}

  bool null() { return Put(nullptr); }
  bool boolean(bool value) { return Put(value); }
  bool number_integer(int64_t value) { return Put(value); }
  bool number_unsigned(uint64_t value) { return Put(value); }
  bool number_float(double value, const std::string&) { return Put(value); }
  bool string(std::string& value) { return Put(std::move(value)); }
  bool binary(OrderedJson::binary_t&) { return false; }  // JSON text has none

  bool start_object(size_t) { return Open(OrderedJson::object()); }
  bool start_array(size_t) { return Open(OrderedJson::array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(std::string& value) {
    if (!open_.back().keys.insert(value).second) {
      Throw(ErrorKind::kCorruptFile, what_ + ": found the key \"" + Printable(value) + "\" twice in one JSON object");
    }
    open_.back().key = std::move(value);
    return true;
  }

  bool parse_error(size_t offset, const std::string&, const OrderedJson::exception& error) {
    const std::string message = error.what();
    const size_t class_end = message.find("] ");
    const std::string text = class_end == std::string::npos ? message : message.substr(class_end + 2);
    Throw(ErrorKind::kCorruptFile,
          what_ + ": not valid JSON at offset " + std::to_string(offset) + ": " + Printable(text, 160));
  }

  OrderedJson Take() { return std::move(root_); }

 private:
  struct Level {
    OrderedJson* value;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  OrderedJson* Place(OrderedJson value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = open_.back();
    if (level.value->is_array()) {
      auto& items = level.value->get_ref<OrderedJson::array_t&>();
      return &items.emplace_back(std::move(value));
    }
    auto& members = level.value->get_ref<OrderedJson::object_t&>();
    using Members = std::vector<OrderedJson::object_t::value_type>;
    static_assert(std::is_base_of_v<Members, OrderedJson::object_t>);
    Members& list = members;
    list.emplace_back(std::move(level.key), std::move(value));
    return &list.back().second;
  }

  bool Put(OrderedJson value) {
    Place(std::move(value));
    return true;
  }

  bool Open(OrderedJson container) {
    if (open_.size() >= static_cast<size_t>(kMaxJsonDepth)) {
      Throw(ErrorKind::kCorruptFile,
            what_ + ": found JSON nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    }
    OrderedJson* value = Place(std::move(container));
    open_.push_back({value, {}, {}});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const std::string& what_;
  OrderedJson root_;
  // A container's address holds while it is open: its parent gets no further element before it is closed.
  std::vector<Level> open_;
};

}  // namespace

OrderedJson ParseOrderedJson(std::string_view text, const std::string& what) {
  // The library would take a zero byte for the end of the text.
  const size_t zero = text.find('\0');
  if (zero != std::string_view::npos) {
    Throw(ErrorKind::kCorruptFile, what + ": not valid JSON: found a zero byte at offset " + std::to_string(zero));
  }
  TreeBuilder builder(what);
  OrderedJson::sax_parse(text.begin(), text.end(), &builder);
  return builder.Take();
}

}  // namespace lapidary
