// Races that ThreadSanitizer reports and that are none of the product's.

// It asks for them (LLVM's documentation, ThreadSanitizerSuppressions).
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return
#ifdef RINGSIDE_GUEST_RACES
      // A guest may have two requests read into one buffer, and then two worker threads write to it
      // at a time: a race, but the guest's own.
      "race:ringside::PerformStep\n"
#endif
      // Abseil's package is not built with the sanitizer, and there the last but one owner of a
      // Status lets go: the last one seems to delete what somebody else still counts.
      "race:^Unref$\n"
      "race:^absl::*::Status::Unref\n";
}
