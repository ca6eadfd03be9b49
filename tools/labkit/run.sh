#!/bin/busybox sh
# Process 1 of L1 once the lab's disk is the root: runs the command, reports how it ended.
#
# /dev/vport0p1 is the control port. Lines sent: "alive N" (processor N, every other second),
# "started", "missing N" (no file for the Nth --get), "exit STATUS". Each output stream ends with the
# marker, so that the lab knows when it has got all of it.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root
/bin/busybox --install -s 2>/dev/null
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
chmod 1777 /tmp /var/tmp /dev/shm
ln -s /proc/self/fd /dev/fd
ln -s /proc/self/fd/0 /dev/stdin
ln -s /proc/self/fd/1 /dev/stdout
ln -s /proc/self/fd/2 /dev/stderr
[ -d /.lab/shm ] && cp -a /.lab/shm/. /dev/shm/
# nobody is who passt becomes.
[ -e /etc/passwd ] ||
	printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' 'nobody:x:65534:65534::/:/bin/sh' >/etc/passwd
[ -e /etc/group ] || echo 'root:x:0:' >/etc/group
hostname lab
ifconfig lo up

# From the host: marker, terminal, terminal_settings, merge_stderr, path_addition, network and TERM.
. /.lab/settings
# As QEMU's user mode has it.
if [ "$network" = yes ]; then
	ip addr add 10.0.2.15/24 dev eth0
	ip link set eth0 up
	ip route add default via 10.0.2.2
	echo 'nameserver 10.0.2.3' >/etc/resolv.conf
fi
PATH=$PATH:$path_addition
export TERM

await_port() {
	until [ -c "$1" ]; do usleep 10000; done
}
await_port /dev/vport0p1
exec 9>/dev/vport0p1

pulses=
processor=0
while [ $processor -lt "$(nproc)" ]; do
	taskset -c $processor sh -c "while echo alive $processor; do sleep 2; done" >&9 &
	pulses="$pulses $!"
	processor=$((processor + 1))
done

# Nothing the command left running may write to its output after the end, or keep it open.
kill_all_but() {
	for process in /proc/[0-9]*; do
		process=${process#/proc/}
		case " 1 $pulses $* " in
		*" $process "*) ;;
		*) kill -9 "$process" 2>/dev/null ;;
		esac
	done
}

# A terminal like any other, so that the keys for interrupting and so on do what they do anywhere;
# a program that wants it raw says so itself.
run_on_terminal() {
	await_port /dev/hvc0
	stty -F /dev/hvc0 $terminal_settings
	echo started >&9
	setsid -c /bin/sh /.lab/command <>/dev/hvc0 >&0 2>&0 9>&-
	status=$?
	kill_all_but
	printf '%s' "$marker" >/dev/hvc0
}

# The command gets pipes: a virtio port can be opened only once, so /dev/stdout would not work.
run_on_pipes() {
	await_port /dev/vport0p2
	await_port /dev/vport0p3
	mkfifo /.lab/stdin /.lab/stdout
	exec 3>/dev/vport0p3
	cat /.lab/stdout >&3 9>&- &
	readers=$!
	if [ "$merge_stderr" = yes ]; then
		ln -s stdout /.lab/stderr
		exec 4>/dev/null
	else
		await_port /dev/vport0p4
		mkfifo /.lab/stderr
		exec 4>/dev/vport0p4
		cat /.lab/stderr >&4 9>&- &
		readers="$readers $!"
	fi
	cat </dev/vport0p2 >/.lab/stdin 3>&- 4>&- 9>&- &
	echo started >&9
	# In a shell of its own, because the end of a child (cat) would interrupt ours in opening a pipe.
	(exec setsid /bin/sh /.lab/command </.lab/stdin >/.lab/stdout 2>/.lab/stderr 3>&- 4>&- 9>&-)
	status=$?
	kill_all_but $readers
	wait $readers
	printf '%s' "$marker" >&3
	printf '%s' "$marker" >&4
}

# Files elsewhere than on the disk (in /dev/shm, /sys and so on) are copied to it.
keep_results() {
	mkdir -p /.lab/results
	while read -r number path; do
		path=$(readlink -f "$path")
		if [ ! -f "$path" ]; then
			echo "missing $number" >&9
		elif ! ln "$path" "/.lab/results/$number" 2>/dev/null; then
			cp "$path" "/.lab/results/$number" || echo "missing $number" >&9
		fi
	done </.lab/get
}

if [ "$terminal" = yes ]; then run_on_terminal; else run_on_pipes; fi
keep_results
sync
echo "exit $status" >&9
poweroff -f
