package commit

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// gate lets the committer sleep until enough waiters have come. A Go timer is too coarse for that (1 ms when the process is idle), and
// yielding in a loop took the processor from those who were waited for (BENCHMARKS.md, Tried and lost).
type gate struct {
	target atomic.Int64 // number of waiters that opens it; 0: nobody sleeps
	fd     int          // eventfd
	poll   [1]unix.PollFd
}

func (g *gate) open() {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		fd = -1 // no descriptor is left: wait returns at once, and rounds are smaller
	}
	g.fd = fd
}

func (g *gate) close() {
	if g.fd >= 0 {
		unix.Close(g.fd)
	}
}

// passed is called with the number of waiters whenever it grows.
func (g *gate) passed(waiting int64) {
	t := g.target.Load()
	if t == 0 || waiting < t || !g.target.CompareAndSwap(t, 0) {
		return
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(g.fd, one[:]) // fails only when it is signalled already
}

// wait blocks until waiting reaches target, or for most.
func (g *gate) wait(waiting *atomic.Int64, target int64, most time.Duration) {
	if g.fd < 0 || most <= 0 {
		return
	}
	g.target.Store(target)
	if waiting.Load() < target {
		g.sleep(most)
	}
	if !g.target.CompareAndSwap(target, 0) { // somebody has signalled: take it back
		var b [8]byte
		g.sleep(time.Second)
		_, _ = unix.Read(g.fd, b[:])
	}
}

// sleep waits for the signal.
func (g *gate) sleep(most time.Duration) {
	for end := time.Now().Add(most); most > 0; most = time.Until(end) {
		g.poll[0] = unix.PollFd{Fd: int32(g.fd), Events: unix.POLLIN}
		t := unix.NsecToTimespec(int64(most))
		if n, err := unix.Ppoll(g.poll[:], &t, nil); n != 0 || err != unix.EINTR {
			return
		}
	}
}
