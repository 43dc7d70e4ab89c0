"""A payload with a tiny C++ program and library: all the steps of a real build, in a few seconds and offline."""

from __future__ import annotations

from pathlib import Path

from boardbench.builds import programs
from boardbench.builds.builder import Wanted
from boardbench.builds.toolchain import controller_arch
from boardbench.payload import Payload, load_payload

CMAKE = """\
cmake_minimum_required(VERSION 3.18)
project(tiny C CXX)
add_library(tiny src/tiny.cpp)
set_target_properties(tiny PROPERTIES VERSION 1.2 SOVERSION 1)
add_executable(say src/say.cpp)
target_link_libraries(say tiny)
add_executable(other src/say.cpp)
target_link_libraries(other tiny)
"""
LIBRARY = """\
#include <stdexcept>
#include <string>
std::string tiny() {
    try { throw std::runtime_error("stock"); } catch (const std::exception & e) { return e.what(); }
}
const char * tiny_file() { return __FILE__; }
"""
PROGRAM = """\
#include <iostream>
#include <string>
std::string tiny();
const char * tiny_file();
int main() { std::cout << tiny() << " " << tiny_file() << std::endl; }
"""
PATCH = """\
--- a/src/tiny.cpp
+++ b/src/tiny.cpp
@@ -1,5 +1,6 @@
 #include <stdexcept>
 #include <string>
+#include "extra/name.h"
 std::string tiny() {
-    try { throw std::runtime_error("stock"); } catch (const std::exception & e) { return e.what(); }
+    try { throw std::runtime_error(NAME); } catch (const std::exception & e) { return e.what(); }
 }
"""
PAYLOAD = """\
version: 1
name: tiny
summary: for tests
boards: {kinds: [host, nanopi-r76s, jetson-orin-nano]}
files:
  - {built: stock, path: stock}
  - {built: patched, path: patched}
build:
  source:
    package: {name: tiny, version: "1.0", sha256: "%s", inside: vendor/tiny}
    commit: abcdef0123
  variants:
    stock: {}
    patched: {overlay: {ours: src/extra}, patches: patches}
  targets: [say]
  cmake: {CMAKE_BUILD_TYPE: Release, BUILD_SHARED_LIBS: "ON"}
  places:
    - {on: board, arch: x86_64, kinds: [nanopi-r76s]}
    - {on: controller, arch: x86_64}
    - {on: controller, arch: aarch64, cmake: {TINY_ARM: "1"}}
"""


def source(folder: Path) -> Path:
    """The source as a plain folder."""
    (folder / "src").mkdir(parents=True)
    for name, text in (("CMakeLists.txt", CMAKE), ("src/tiny.cpp", LIBRARY), ("src/say.cpp", PROGRAM)):
        (folder / name).write_text(text)
    return folder


def payload(folder: Path) -> Payload:
    """The payload `tiny`, stock and patched."""
    place = folder / "tiny"
    (place / "ours").mkdir(parents=True)
    (place / "patches").mkdir()
    (place / "payload.yml").write_text(PAYLOAD % ("0" * 64))
    (place / "ours/name.h").write_text('#define NAME "patched"\n')
    (place / "patches/0001-name.patch").write_text(PATCH)
    return load_payload(place)


def wanted(folder: Path, variant: str = "stock", arch: str = "") -> Wanted:
    """A build of the payload from a folder of its own (made when it is not there)."""
    if not (folder / "source").exists():
        source(folder / "source")
        payload(folder)
    return programs.wanted(
        load_payload(folder / "tiny"),
        variant,
        kind="host",
        arch=arch or controller_arch(),
        virtual=False,
        given=str(folder / "source"),
        cache=folder / "cache",
    )
