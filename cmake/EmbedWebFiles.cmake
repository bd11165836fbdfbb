# cmake -DOUTPUT=<file.cc> -DFILES=<list> -P EmbedWebFiles.cmake: writes the definition of EmbeddedWebFiles() (src/server/web_page.cc).
set(types .html "text/html; charset=utf-8" .js "text/javascript; charset=utf-8" .css "text/css; charset=utf-8"
          .svg "image/svg+xml" .png "image/png" .ico "image/x-icon")
set(data "")
set(entries "")
set(index 0)
foreach(file IN LISTS FILES)
  get_filename_component(name "${file}" NAME)
  get_filename_component(extension "${file}" LAST_EXT)
  list(FIND types "${extension}" at)
  if(at EQUAL -1)
    continue()
  endif()
  math(EXPR at "${at} + 1")
  list(GET types ${at} type)
  file(READ "${file}" bytes HEX)
  string(LENGTH "${bytes}" size)
  math(EXPR size "${size} / 2")
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  if(name STREQUAL "index.html")
    set(name "")
  endif()
  string(APPEND data "constexpr unsigned char kFile${index}[] = {${bytes}0};\n")
  string(APPEND entries "      WebFile{\"/${name}\", \"${type}\", {reinterpret_cast<const char*>(kFile${index}), ${size}}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE "${OUTPUT}" "#include <array>
#include <span>

#include \"server/web_page.h\"

namespace lapidary {
namespace {
${data}}  // namespace

std::span<const WebFile> EmbeddedWebFiles();
std::span<const WebFile> EmbeddedWebFiles() {
  static const std::array<WebFile, ${index}> files = {
${entries}  };
  return files;
}
}  // namespace lapidary
")
