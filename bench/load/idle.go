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
func OpenIdle(address string, n int) (*Idle, error) {
	return OpenIdleTimed(address, n, NewRecorder(), AnswerMax)
}

// OpenIdleTimed is OpenIdle, and records how long each took to connect and to be answered, which may be answerMax.
func OpenIdleTimed(address string, n int, latency *Recorder, answerMax time.Duration) (*Idle, error) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur < uint64(n)+64 {
		limit.Cur = min(limit.Max, uint64(n)+64)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return nil, fmt.Errorf("limit of open files: %w", err)
		}
	}
	idle := &Idle{fds: make([]int, 0, n)}
	frame := frames.APIVersions()
	for i := range n {
		begun := time.Now()
		fd, err := connect(address)
		if err == nil {
			idle.fds = append(idle.fds, fd)
			err = greet(fd, frame, answerMax)
		}
		if err != nil {
			idle.Close()
			return nil, fmt.Errorf("connection %d: %w", i+1, err)
		}
		latency.Record(int64(time.Since(begun)))
	}
	return idle, nil
}

// AnswerMax is how long a connection may wait for its answer: a broker that has as many as it may leaves further ones waiting.
const AnswerMax = 10 * time.Second

// greet sends one ApiVersions request on a blocking socket and reads the answer.
func greet(fd int, frame []byte, answerMax time.Duration) error {
	wait := unix.NsecToTimeval(int64(answerMax))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return err
	}
	if _, err := unix.Write(fd, frame); err != nil {
		return err
	}
	var buf [4096]byte
	size := 4
	for have := 0; have < size; {
		n, err := unix.Read(fd, buf[have:])
		switch {
		case err == unix.EAGAIN:
			return fmt.Errorf("connected, and no answer within %v: the broker may have as many connections as it allows (max.connections)", answerMax)
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
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

// Lost is how many of them the broker has closed.
func (i *Idle) Lost() (n int) {
	var b [1]byte
	for _, fd := range i.fds {
		got, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if got == 0 && err == nil || err != nil && err != unix.EAGAIN && err != unix.EINTR {
			n++
		}
	}
	return n
}

// Close closes them all.
func (i *Idle) Close() {
	for _, fd := range i.fds {
		unix.Close(fd)
	}
	i.fds = nil
}
