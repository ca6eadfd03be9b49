# /autorun in the initramfs of the guest of powercut_lab.py. On the ext4 of /dev/vda's first 12 MiB it
# makes, changes and renames files. After each fsync it writes a mark behind them, past the file
# system: its number, what the file is called, and the file's checksum. So where the mark is, the file
# has to be.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
marks=$((12 * 2048))  # sectors
number=0

# mark NAME
mark() {
    printf '%-511s\n' "mark $number $1 $(sha256sum <"/mnt/$1" | cut -d ' ' -f 1)" |
        dd of=/dev/vda bs=512 seek=$((marks + number)) oflag=direct conv=notrunc 2>/dev/null ||
        echo "guest_error=mark $number"
    number=$((number + 1))
}

# random FILE COUNT: pages, and an fsync.
random() { dd if=/dev/urandom of="$1" bs=4k count="$2" conv=fsync 2>/dev/null; }

mount -t ext4 /dev/vda /mnt || echo "guest_error=mount"
mkdir /mnt/d
for i in $(seq 0 "$((${files:-24} - 1))"); do
    random "/mnt/d/f$i" $((1 + i % 7)) || echo "guest_error=f$i"
    mark "d/f$i"
    # Not flushed: it may be there in part.
    dd if=/dev/urandom of="/mnt/loose$i" bs=4k count=2 2>/dev/null
    case $((i % 4)) in
        1)  # Once more as long.
            dd if=/dev/urandom of="/mnt/d/f$i" bs=4k count=2 seek=$((1 + i % 7)) \
                conv=notrunc,fsync 2>/dev/null
            mark "d/f$i"
            ;;
        3)  # A new file in an old one's place, as editors do.
            random /mnt/d/new 2
            mv /mnt/d/new "/mnt/d/f$((i - 1))"
            dd if=/dev/null "of=/mnt/d/f$((i - 1))" conv=notrunc,fsync 2>/dev/null
            mark "d/f$((i - 1))"
            ;;
    esac
done
umount /mnt || echo "guest_error=umount"
echo "marks=$number"
