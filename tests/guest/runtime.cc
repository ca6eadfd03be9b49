// The C functions that g++ (GCC manual, "Language Standards Supported by GCC") and std::string_view
// call even with -ffreestanding. Plain byte loops: nothing here is on a path that matters. Compiled
// with -fno-tree-loop-distribute-patterns, lest the loops become calls to themselves.

#include <cstddef>

extern "C" {

void* memcpy(void* to, const void* from, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
  }
  return to;
}

void* memmove(void* to, const void* from, size_t size) {
  if (to <= from) return memcpy(to, from, size);
  for (size_t i = size; i > 0; --i) {
    static_cast<char*>(to)[i - 1] = static_cast<const char*>(from)[i - 1];
  }
  return to;
}

void* memset(void* to, int value, size_t size) {
  for (size_t i = 0; i < size; ++i) static_cast<char*>(to)[i] = static_cast<char>(value);
  return to;
}

int memcmp(const void* a, const void* b, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    const int difference =
        static_cast<const unsigned char*>(a)[i] - static_cast<const unsigned char*>(b)[i];
    if (difference != 0) return difference;
  }
  return 0;
}

const void* memchr(const void* in, int value, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(in);
  for (size_t i = 0; i < size; ++i) {
    if (bytes[i] == static_cast<unsigned char>(value)) return bytes + i;
  }
  return nullptr;
}

size_t strlen(const char* text) {
  size_t size = 0;
  while (text[size] != '\0') ++size;
  return size;
}

}  // extern "C"
