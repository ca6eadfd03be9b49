// <linux/kvm.h>, usable from C++: include this and never the original.
//
// In Debian 12's headers __DECLARE_FLEX_ARRAY puts an empty struct before the array. In C that has
// no size, in C++ it has one, so structures that end in such an array grow by 4 to 8 bytes, their
// ioctl numbers (which encode the size) come out wrong, and the kernel answers EINVAL.
#pragma once

#include <linux/stddef.h>

#undef __DECLARE_FLEX_ARRAY
#define __DECLARE_FLEX_ARRAY(T, N) T N[0]  // NOLINT(bugprone-reserved-identifier): the kernel's

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"  // arrays of no size
#include <linux/kvm.h>
#pragma GCC diagnostic pop

static_assert(sizeof(kvm_cpuid2) == 8);
static_assert(sizeof(kvm_msrs) == 8);
static_assert(sizeof(kvm_irq_routing) == 8);
static_assert(sizeof(kvm_msr_list) == 4);
static_assert(sizeof(kvm_signal_mask) == 4);
static_assert(sizeof(kvm_stats_desc) == 16);
