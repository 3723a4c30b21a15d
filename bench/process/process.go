// Package process runs the program under test and reads from outside what it uses: processor time from its CPU clock, memory from
// /proc.
//
// It knows nothing of Kafka but that a subject is up when it answers ApiVersions. A process that was started must be ended by
// Stop or Kill. It is for Linux.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kaas/bench/load"
)

const (
	startTimeout = 180 * time.Second // a Java broker on a busy machine
	stopTimeout  = 60 * time.Second
	pollPause    = 100 * time.Microsecond
	peakPause    = 20 * time.Millisecond
	saidBytesMax = 500
	exitBySignal = 128 + int(syscall.SIGTERM) // how a Java program ends in good order after SIGTERM
)

// Process is a running subject.
type Process struct {
	Address string
	StartMs float64 // from before the start of the process to its first answer to ApiVersions

	cmd   *exec.Cmd
	errs  bytes.Buffer
	ended chan struct{}
	err   error // of Wait, valid once ended is closed
}

// FreePort finds a TCP port that nobody listens on, as an address of the loopback.
func FreePort() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Start runs a program with the arguments that args makes of a free address, and waits for its first answer.
func Start(program string, args func(address string) []string) (*Process, error) {
	address, err := FreePort()
	if err != nil {
		return nil, err
	}
	return Run(exec.Command(program, args(address)...), address)
}

// Run starts cmd, which will serve at address, and waits for its first answer.
func Run(cmd *exec.Cmd, address string) (*Process, error) {
	p := &Process{Address: address, cmd: cmd, ended: make(chan struct{})}
	p.cmd.Stderr = &p.errs
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	for {
		err := ask(address)
		if err == nil {
			p.StartMs = float64(time.Since(began).Microseconds()) / 1e3
			return p, nil
		}
		select {
		case <-p.ended:
			return nil, fmt.Errorf("%s %v ended: %w: %s", cmd.Path, p.cmd.Args[1:], errors.Join(p.err, err), p.Said())
		case <-time.After(pollPause):
		}
		if time.Since(began) > startTimeout {
			p.Kill()
			return nil, fmt.Errorf("%s does not answer: %w: %s", cmd.Path, err, p.Said())
		}
	}
}

func ask(address string) error {
	c, err := load.Dial(address, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.APIVersions()
	return err
}

// Said is what the process wrote to its standard error; of much, the beginning and the end. It must have ended.
func (p *Process) Said() []byte {
	b := bytes.TrimSpace(p.errs.Bytes())
	if len(b) <= 2*saidBytesMax {
		return b
	}
	return slices.Concat(b[:saidBytesMax], []byte(" … "), b[len(b)-saidBytesMax:])
}

// Kill ends the process at once.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.ended
}

// Stop ends the process by SIGTERM. An exit code is an error unless it says just that.
func (p *Process) Stop() error { return p.StopWithin(stopTimeout) }

// StopWithin is Stop for a process that may take so long.
func (p *Process) StopWithin(timeout time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(timeout):
		p.Kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM", p.cmd.Path, timeout)
	}
	if p.err != nil && p.cmd.ProcessState.ExitCode() != exitBySignal {
		return fmt.Errorf("%s: %w: %s", p.cmd.Path, p.err, p.Said())
	}
	return nil
}

// CPU is the processor time that the process has used, in seconds, with all its threads.
func (p *Process) CPU() (float64, error) { return CPU(p.cmd.Process.Pid) }

// RssAnon is the memory of the process that is no file, in bytes.
func (p *Process) RssAnon() (float64, error) { return RssAnon(p.cmd.Process.Pid) }

// WatchMemory looks at RssAnon often until the function it returns is called, which returns the highest value seen, in bytes.
func (p *Process) WatchMemory() (stop func() float64) { return WatchMemory(p.cmd.Process.Pid) }

// WatchMemory is the same for any process.
func WatchMemory(pid int) (stop func() float64) {
	var highest atomic.Int64
	end, ended := make(chan struct{}), make(chan struct{})
	look := func() {
		if now, err := RssAnon(pid); err == nil { // an error is that the process has ended, which others will notice
			highest.Store(max(highest.Load(), int64(now)))
		}
	}
	go func() {
		defer close(ended)
		for {
			look()
			select {
			case <-end:
				look()
				return
			case <-time.After(peakPause):
			}
		}
	}()
	return func() float64 {
		close(end)
		<-ended
		return float64(highest.Load())
	}
}

// CPU is the processor time of any process, in seconds, with all its threads.
func CPU(pid int) (float64, error) {
	const schedClock = 2 // CPUCLOCK_SCHED of the clock id that clock_getcpuclockid(3) makes
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &t); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return float64(t.Nano()) / 1e9, nil
}

// RssAnon is the memory of any process that is no file, in bytes.
func RssAnon(pid int) (float64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("RssAnon:")); ok {
			kb, err := strconv.ParseFloat(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 64)
			return kb * 1024, err
		}
	}
	return 0, errors.New("no RssAnon in /proc: the kernel is older than 4.5")
}

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }
