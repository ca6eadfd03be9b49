#!/bin/sh
# Runs inside the lab (busybox sh): a stock guest at work (save_guest.sh) is saved whole, and then again and
# again as the difference to the save before, in the middle of its work, the last time with its end. What is
# merged of all of these goes on where it stood, and is saved as a difference once more, and merged with that.
#
#   save_chain.sh RINGSIDE KERNEL INITRD FIO_DISK CPUS DIFFERENCES [NET_OPTIONS]
#
# NET_OPTIONS go behind the network's, such as ",vhost=on".
set -u
ringside=$1 kernel=$2 initrd=$3 fio_disk=$4 cpus=$5 differences=$6 net_options=${7:-}
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/save_common.sh"

# pages SNAPSHOT: of which it has the content.
pages() { "$ringside" snapshot info "$work/$1" | sed -n 's/.*difference of \([0-9]*\) pages.*/\1/p'; }

# save NAME OPTION...: and says how long that took.
save() {
    name=$1
    shift
    saves=$(now)
    ctl save "$work/$name" "$@"
    echo "$name: $(du -k "$work/$name/memory" | cut -f 1) KiB in $(in_ms $(($(now) - saves))) ms"
}

# merge TO SNAPSHOT...
merge() {
    to=$work/$1
    shift
    "$ringside" snapshot merge $(printf "$work/%s " "$@") --to "$to" >/dev/null 2>>"$work/errors" ||
        fail "merge: $(tail -n 1 "$work/errors")"
}

check() { [ $failures = 0 ] || { cat "$work/errors" "$serial"; exit 1; }; }

boot_worker || begin_anew
save whole --track on
links=
for link in $(seq "$differences"); do
    moves 60
    stop=off
    [ "$link" != "$differences" ] || stop=on
    save "link$link" --difference on --stop $stop
    [ "$(pages "link$link")" -gt 0 ] || fail "link$link has no pages"
    links="$links link$link"
done
wait $pid || fail "exit code $? of the machine that is saved"
merge snap whole $links
check
restore
patience=5 within 60 random || fail "the agent does not answer"
moves 60
save again --difference on --stop on
wait $pid || fail "exit code $? of the second machine that is saved"
mv "$work/snap" "$work/merged"
merge snap merged again
check
restore
patience=5 within 60 random || fail "the agent of the third machine does not answer"
moves 60
told_of_copies 2
end_worker
kill $server
check
