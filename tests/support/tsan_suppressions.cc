// What ThreadSanitizer cannot see: Abseil's package is not built with it, and there the last but one
// owner of a Status lets go. So the last one seems to delete what somebody else still counts.

// The name is the sanitizer's (llvm.org, ThreadSanitizerSuppressions).
extern "C" const char* __tsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "race:^Unref$\n";
}
