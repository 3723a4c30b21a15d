package load

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"kaas/bench/frames"
)

// Idle is a set of connections that have asked for ApiVersions once and then say nothing.
type Idle struct{ fds []int }

// OpenIdle opens n of them. It raises the process's own limit of open files as far as it may.
func OpenIdle(address string, n int) (*Idle, error) { return OpenIdleTimed(address, n, NewRecorder()) }

// OpenIdleTimed is OpenIdle, and records how long each took to connect and to be answered.
func OpenIdleTimed(address string, n int, latency *Recorder) (*Idle, error) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur < uint64(n)+64 {
		limit.Cur = min(limit.Max, uint64(n)+64)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return nil, fmt.Errorf("limit of open files: %w", err)
		}
	}
	idle := &Idle{fds: make([]int, 0, n)}
	frame := frames.APIVersions()
	for range n {
		begun := time.Now()
		fd, err := connect(address)
		if err == nil {
			idle.fds = append(idle.fds, fd)
			err = greet(fd, frame)
		}
		if err != nil {
			idle.Close()
			return nil, fmt.Errorf("connection %d: %w", len(idle.fds), err)
		}
		latency.Record(int64(time.Since(begun)))
	}
	return idle, nil
}

// greet sends one ApiVersions request on a blocking socket and reads the answer.
func greet(fd int, frame []byte) error {
	if _, err := unix.Write(fd, frame); err != nil {
		return err
	}
	var buf [4096]byte
	size := 4
	for have := 0; have < size; {
		n, err := unix.Read(fd, buf[have:])
		if err != nil {
			return err
		}
		if n == 0 {
			return errClosed
		}
		if have += n; have >= 4 {
			if size = 4 + int(binary.BigEndian.Uint32(buf[:])); size > len(buf) {
				return fmt.Errorf("answer of %d bytes: %w", size, frames.ErrMalformed)
			}
		}
	}
	if size < frames.ResponseHead {
		return frames.ErrMalformed
	}
	_, err := frames.APIVersionsAnswer(buf[frames.ResponseHead:size])
	return err
}

// Len is the number of open connections.
func (i *Idle) Len() int { return len(i.fds) }

// Close closes them all.
func (i *Idle) Close() {
	for _, fd := range i.fds {
		unix.Close(fd)
	}
	i.fds = nil
}
