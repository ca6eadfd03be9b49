// What the machine has that cannot find itself: the serial port, the power button, what tells a copy
// from the machine it was copied from, the panic port and the PCI host bridge.
// Compiled by iasl at build time; addresses as in memory_layout.h (a test compares them).
DefinitionBlock ("dsdt.aml", "DSDT", 2, "RNGSDE", "RINGSIDE", 1)
{
    // SLP_TYP 5 is SleepRegisters::kSleepTypeS5.
    Name (\_S5, Package () { 5, 0, 0, 0 })

    Scope (\_SB)
    {
        Device (COM1)
        {
            Name (_HID, EisaId ("PNP0501"))
            Name (_UID, 1)
            Name (_CRS, ResourceTemplate ()
            {
                IO (Decode16, 0x3F8, 0x3F8, 1, 8)
                // Not IRQ(): a hardware-reduced machine has no legacy interrupts to override.
                Interrupt (ResourceConsumer, Edge, ActiveHigh, Exclusive) { 4 }
            })
        }

        // A hardware-reduced machine has no fixed button (ACPI 6.5 section 4.8.2.2.1.2).
        Device (PWRB)
        {
            Name (_HID, EisaId ("PNP0C0C"))
            Name (_UID, 1)
        }

        // Virtual Machine Generation ID: found by its _CID, and the _HID is each machine's own.
        Device (VGEN)
        {
            Name (_HID, "RNGS0001")
            Name (_CID, "VM_Gen_Counter")
            Name (_UID, 1)
            Name (_STA, 0x0F)
            Name (ADDR, Package () { 0x000EE010, 0 })
        }

        // VMClock: the same in a page that programs can map.
        Device (VCLK)
        {
            Name (_HID, "AMZNC10C")
            Name (_CID, "VMCLOCK")
            Name (_UID, 1)
            Name (_STA, 0x0F)
            Name (_CRS, ResourceTemplate ()
            {
                Memory32Fixed (ReadOnly, 0x000EF000, 0x00001000)
            })
        }

        // The Generic Event Device (section 5.6.9): an interrupt for the button, and one that says
        // that the machine is a copy now. Edge: nothing is left to be acknowledged, and a level that
        // nobody takes back would be raised for ever.
        Device (GED0)
        {
            Name (_HID, "ACPI0013")
            Name (_UID, 1)
            Name (_CRS, ResourceTemplate ()
            {
                Interrupt (ResourceConsumer, Edge, ActiveHigh, Exclusive) { 16 }
                Interrupt (ResourceConsumer, Edge, ActiveHigh, Exclusive) { 17 }
            })
            Method (_EVT, 1, Serialized)
            {
                If (Arg0 == 16)
                {
                    Notify (PWRB, 0x80)
                }
                Else
                {
                    Notify (VGEN, 0x80)
                    Notify (VCLK, 0x80)
                }
            }
        }

        // The port of pvpanic, as QEMU's specification of it has it. It cannot be enumerated by
        // anything else, and shows in no user interface (section 6.3.7: present, decoding, working).
        Device (PEVT)
        {
            Name (_HID, "QEMU0001")
            Name (_UID, 1)
            Name (_STA, 0x0B)
            Name (_CRS, ResourceTemplate ()
            {
                IO (Decode16, 0x505, 0x505, 1, 1)
            })
        }

        // Reserves the ECAM window that MCFG announces (PCI Firmware 3.3 section 4.1.2).
        Device (MBRD)
        {
            Name (_HID, EisaId ("PNP0C02"))
            Name (_UID, 1)
            Name (_CRS, ResourceTemplate ()
            {
                Memory32Fixed (ReadWrite, 0xE0000000, 0x00100000)
            })
        }

        Device (PCI0)
        {
            Name (_HID, EisaId ("PNP0A08"))
            Name (_CID, EisaId ("PNP0A03"))
            Name (_UID, 0)
            Name (_SEG, 0)
            Name (_BBN, 0)
            Name (_CRS, ResourceTemplate ()
            {
                WordBusNumber (ResourceProducer, MinFixed, MaxFixed, PosDecode,
                    0, 0, 0, 0, 1)
                IO (Decode16, 0xCF8, 0xCF8, 1, 8)
                DWordMemory (ResourceProducer, PosDecode, MinFixed, MaxFixed, NonCacheable,
                    ReadWrite, 0, 0xC0000000, 0xDFFFFFFF, 0, 0x20000000)
            })
            // The machine keeps no PCIe feature for itself (PCI Firmware 3.3 section 4.5.1): the
            // guest gets whatever control it asks for.
            Method (_OSC, 4, NotSerialized)
            {
                Return (Arg3)
            }
        }
    }
}
