# Runs in the quick start's guest without a terminal: a line about itself, one about its disk, and one
# about its network if it has one. Then visit.sh has a command run here.
fio --output-format=terse --terse-version=3 --filename=/fio-data --size=8M --direct=1 \
    --ioengine=io_uring --iodepth=16 --thread \
    --name=verify --rw=randwrite --bs=64k --verify=crc32c --verify_fatal=1 \
    --name=read --stonewall --rw=randread --bs=4k --time_based --runtime=2 >/run/fio 2>&1 &&
    verified="fio's writes verified" || verified="FIO FOUND ERRORS"
# Field 8: read operations per second.
reads=$(awk -F ';' '$3 == "read" {print $8}' /run/fio)
echo "Hello from Linux $(uname -r) under Ringside: $(nproc) CPUs," \
    "$(awk '/MemTotal/ {print int($2 / 1024)}' /proc/meminfo) MiB, clock" \
    "$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)," \
    "root on $(awk '$2 == "/" {print $1}' /proc/mounts)"
echo "Its disk: $verified, $reads random reads of 4 KiB a second"
if [ -e /sys/class/net/eth0 ]; then
    address=$(ip -4 -o addr show eth0 | awk '{print $4}')
    router=$(ip route | awk '$1 == "default" {print $3}')
    echo "Its network: ${address:-no address} by way of ${router:-nobody}, by DHCP"
fi
touch /run/reported
# No longer than a minute: the host may have gone.
tries=0
until [ -e /run/visited ] || [ $tries = 600 ]; do
    tries=$((tries + 1))
    usleep 100000
done
