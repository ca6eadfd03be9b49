# The first instructions of the test guest: both entry points, the descriptor and page tables they
# load, the gate back into ring 0, and the way of the application processors.
#
# Everything the CPU needs is laid out here at link time, so that the way from either entry to
# GuestMain (main.cc, 64-bit mode, CPL 3) is about twenty instructions: some test hosts interpret
# guest ring 0 at more than a microsecond an instruction and run ring 3 at native speed. Nothing in
# this file may loop over memory; what can be done in ring 3 (the IDT's contents, devices, the
# local APIC) is done there.
#
# "SDM" is the Intel 64 Software Developer's Manual, volume 3.

        # Selectors, indices into gdt below. interrupts.cc uses the two code selectors.
        .set KERNEL_CODE, 0x08
        .set USER_DATA, 0x10 | 3
        .set USER_CODE, 0x18 | 3
        .set TASK, 0x20                           # and 16 more for each processor
        .set MAX_PROCESSORS, 16

        .set CR0_PROTECTED_PAGED, 0x80000021      # PG, NE, PE
        .set CR4_PAE, 0x20
        .set MSR_EFER, 0xc0000080
        .set EFER_LME, 0x100
        .set RFLAGS_INTERRUPTS_ON, 0x202

# ---------------------------------------------------------------------------------------------
# PVH note: XEN_ELFNOTE_PHYS32_ENTRY (18) gives the 32-bit entry point (Xen: public/elfnote.h).
# The descriptor is 8 bytes because that is what QEMU reads from a 64-bit ELF.

        .section .note.pvh, "a", @note
        .balign 4
        .long   4, 8, 18                # name size, descriptor size, type
        .asciz  "Xen"
        .quad   pvh_start

# ---------------------------------------------------------------------------------------------
# PVH entry (Xen: public/arch-x86/hvm/start_info.h, docs/misc/pvh.pandoc): 32-bit flat protected
# mode, paging off, interrupts off, ebx = hvm_start_info. Into long mode as in SDM 9.8.5.

        .text
        .code32
        .globl  pvh_start
pvh_start:
        lgdt    gdt_register
        mov     $CR4_PAE, %eax
        mov     %eax, %cr4
        mov     $page_map_level_4, %eax
        mov     %eax, %cr3
        mov     $MSR_EFER, %ecx
        mov     $EFER_LME, %eax
        xor     %edx, %edx
        wrmsr
        mov     $CR0_PROTECTED_PAGED, %eax
        mov     %eax, %cr0
        ljmp    $KERNEL_CODE, $pvh_long_mode

        .code64
pvh_long_mode:
        mov     %ebx, %edi              # GuestMain's first argument: the boot structure
        xor     %esi, %esi              # and its second: BootProtocol::kPvh
        jmp     enter_ring3

# Linux 64-bit entry (Linux: Documentation/x86/boot.rst, "64-bit Boot Protocol"): long mode on some
# identity map of the loader's, interrupts off, rsi = boot_params. CR4 is set to PAE alone before
# our page tables come in: with SMEP on, ring 0 could not execute their user-accessible pages.
        .globl  linux64_start
linux64_start:
        mov     %rsi, %rdi
        mov     $1, %esi                # BootProtocol::kLinux64
        mov     $CR4_PAE, %eax
        mov     %rax, %cr4
        mov     $page_map_level_4, %eax
        mov     %rax, %cr3
        lgdt    gdt_register

enter_ring3:
        lidt    idt_register            # the IDT's contents: InitInterrupts in interrupts.cc
        mov     $TASK, %eax
        ltr     %ax
        mov     $0xff, %al              # mask both PICs before interrupts are let in
        out     %al, $0x21
        out     %al, $0xa1
        mov     $ring3_frame, %esp
        iretq

# ---------------------------------------------------------------------------------------------
# The gate back: a breakpoint with a function's address in rdi runs it in ring 0 (RunInRing0).
        .globl  ring0_gate
ring0_gate:
        call    *%rdi
        iretq

# ---------------------------------------------------------------------------------------------
# What an application processor runs, in real mode, after StartProcessors (processors.cc) has copied
# it to a page below 1 MiB: into long mode as above, with PE and PG switched on by one write, and to
# ring 3 by what ap_start_frame says. Its segment is the page's, so its own operands are relative to
# its start.
        .section .rodata, "a"
        .code16
        .globl  ap_trampoline, ap_trampoline_end
ap_trampoline:
        lgdtl   %cs:(ap_gdt_register - ap_trampoline)
        mov     $CR4_PAE, %eax
        mov     %eax, %cr4
        mov     $page_map_level_4, %eax
        mov     %eax, %cr3
        mov     $MSR_EFER, %ecx
        mov     $EFER_LME, %eax
        xor     %edx, %edx
        wrmsr
        mov     $CR0_PROTECTED_PAGED, %eax
        mov     %eax, %cr0
        ljmpl   $KERNEL_CODE, $ap_long_mode
ap_gdt_register:
        .word   gdt_end - gdt - 1
        .long   gdt
ap_trampoline_end:

        .text
        .code64
ap_long_mode:
        lidt    idt_register
        mov     $ap_start_frame, %esp
        mov     40(%rsp), %rdi          # ProcessorMain's argument
        mov     48(%rsp), %rax
        ltr     %ax
        iretq

# ---------------------------------------------------------------------------------------------
# Descriptor tables (SDM 3.4.5, 3.5, 8.7). The base of the task state segment is scattered over its
# descriptor; guest.ld cuts it into the tss_base_* pieces. Accessed bits are preset.

        .data
        .balign 16
gdt:
        .quad   0
        .quad   0x00209b0000000000      # KERNEL_CODE: 64-bit, DPL 0
        .quad   0x00cff3000000ffff      # USER_DATA: flat, DPL 3
        .quad   0x0020fb0000000000      # USER_CODE: 64-bit, DPL 3
        # TASK: one descriptor a processor, because ltr marks it busy, all of the one segment. So
        # application processors may use ports too; only one of all may be in ring 0 at a time.
        .rept   MAX_PROCESSORS
        .word   tss_end - tss - 1, tss_base_0_15
        .byte   tss_base_16_23, 0x89, 0, tss_base_24_31
        .quad   0
        .endr
gdt_end:

        .balign 8
        .word   0, 0, 0                 # so that the base is aligned
gdt_register:
        .word   gdt_end - gdt - 1
        .quad   gdt

        .balign 8
        .word   0, 0, 0
idt_register:
        .word   256 * 16 - 1
        .quad   idt

# The frame the one iretq to ring 3 pops: rip, cs, rflags, rsp, ss. The stack is aligned as it
# would be just after a call.
        .balign 8
ring3_frame:
        .quad   GuestMain, USER_CODE, RFLAGS_INTERRUPTS_ON, ring3_stack_end - 8, USER_DATA

# The same for an application processor, and then ProcessorMain's argument and the task selector.
# processors.cc fills in what is 0.
        .globl  ap_start_frame
ap_start_frame:
        .quad   ProcessorMain, USER_CODE, RFLAGS_INTERRUPTS_ON, 0, USER_DATA, 0, 0

# 64-bit task state segment. Its I/O bitmap is all zero, which gives ring 3 every port (IOPL would
# do too, but not every KVM keeps it), and ends in the byte of ones that SDM vol 1, 19.5.2, asks.
        .balign 16
        .globl  tss                     # for guest.ld
tss:
        .long   0
        .quad   ring0_stack_end         # rsp0
        .fill   90, 1, 0                # rsp1, rsp2, interrupt stack table, reserved
        .word   tss_io_bitmap - tss
tss_io_bitmap:
        .fill   8192, 1, 0
        .byte   0xff
tss_end:

# ---------------------------------------------------------------------------------------------
# Page tables (SDM 4.5): physical 0 to 8 GiB and one GiB at 256 GiB (machine.h says what for) at the
# same virtual addresses, in 2 MiB pages that ring 3 may use, with accessed and dirty set
# beforehand. Device registers lie in them as cacheable memory, which KVM does not mind: it sees
# every access to them.
        .set TABLE, 0x27                # accessed, user, writable, present
        .set PAGE_2M, 0xe7              # page size, dirty, and the same
        .set MAPPED_GIB, 8
        .set HIGH_WINDOW_GIB, 256

        .balign 4096
page_map_level_4:
        .quad   page_directory_pointers + TABLE
        .fill   511, 8, 0
page_directory_pointers:
        .set    offset, 0
        .rept   MAPPED_GIB
        .quad   page_directories + offset + TABLE
        .set    offset, offset + 4096
        .endr
        .fill   HIGH_WINDOW_GIB - MAPPED_GIB, 8, 0
        .quad   page_directories + offset + TABLE
        .fill   511 - HIGH_WINDOW_GIB, 8, 0
page_directories:
        .set    address, 0
        .rept   MAPPED_GIB * 512
        .quad   address + PAGE_2M
        .set    address, address + 0x200000
        .endr
        .set    address, HIGH_WINDOW_GIB << 30
        .rept   512
        .quad   address + PAGE_2M
        .set    address, address + 0x200000
        .endr

        .bss
        .balign 16
        .skip   4096
ring0_stack_end:
        .skip   32768
ring3_stack_end:

        .section .note.GNU-stack, "", @progbits
