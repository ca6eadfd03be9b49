# /autorun in the initramfs of the guests of nvme_linux.sh's group kill: checks the records that
# guests before it had flushed (their number is on the kernel's command line: records=N), then writes
# on, and says after each flush how many there are. Meanwhile other requests keep the queues busy,
# with a record's flush among them and with DMA in both directions.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin

# number FIRST LAST: records, 4 KiB each; nvme_lab.py knows them too.
number() { seq "$1" "$2" | awk '{printf "%-4095s\n", "record " $1}'; }

records=$(sed -n 's/.*\brecords=\([0-9]*\).*/\1/p' /proc/cmdline)
if [ "$records" -gt 0 ]; then
    expected=$(number 0 $((records - 1)) | sha256sum)
    found=$(dd if=/dev/vda bs=4096 count="$records" iflag=direct 2>/dev/null | sha256sum)
    [ "$found" = "$expected" ] || echo "guest_error=of $records flushed records not all are there"
fi
echo "records=checked"

# Behind the records: 16 MiB on.
while :; do
    dd if=/dev/zero of=/dev/vda bs=64k seek=256 count=64 conv=notrunc oflag=direct 2>/dev/null
done &
while :; do dd if=/dev/vda of=/dev/null bs=128k skip=128 count=64 iflag=direct 2>/dev/null; done &

while number "$records" "$records" |
    dd of=/dev/vda bs=4096 seek="$records" conv=notrunc,fsync 2>/dev/null; do
    records=$((records + 1))
    echo "flushed=$records;"
done
echo "guest_error=record $records could not be written"
