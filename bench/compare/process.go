package compare

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kaas/bench/load"
)

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 60 * time.Second
	pollPause    = 100 * time.Microsecond
	saidBytesMax = 500
)

// process is a running subject.
type process struct {
	cmd     *exec.Cmd
	address string
	errs    bytes.Buffer
	startMs float64 // from before the start of the process to its first answer to ApiVersions
	ended   chan struct{}
	err     error // of Wait, valid once ended is closed
}

// freePort finds a TCP port that nobody listens on.
func freePort() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// start runs a program with the arguments that args makes of the address, and waits for its first answer.
func start(program string, args func(address string) []string) (*process, error) {
	address, err := freePort()
	if err != nil {
		return nil, err
	}
	p := &process{address: address, cmd: exec.Command(program, args(address)...), ended: make(chan struct{})}
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
			p.startMs = float64(time.Since(began).Microseconds()) / 1e3
			return p, nil
		}
		select {
		case <-p.ended:
			return nil, fmt.Errorf("%s %v ended: %w: %s", program, p.cmd.Args[1:], errors.Join(p.err, err), p.said())
		case <-time.After(pollPause):
		}
		if time.Since(began) > startTimeout {
			p.kill()
			return nil, fmt.Errorf("%s does not answer: %w: %s", program, err, p.said())
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

// said is the beginning of what the process wrote to its standard error. It must have ended.
func (p *process) said() []byte {
	b := bytes.TrimSpace(p.errs.Bytes())
	return b[:min(len(b), saidBytesMax)]
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.ended
}

// stop ends the process by SIGTERM. An exit code other than 0 is an error.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		p.kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM", p.cmd.Path, stopTimeout)
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w: %s", p.cmd.Path, p.err, p.said())
	}
	return nil
}

// cpu is the processor time that the process has used, in seconds, with all its threads.
func (p *process) cpu() (float64, error) {
	const schedClock = 2 // CPUCLOCK_SCHED of the clock id that clock_getcpuclockid(3) makes
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^p.cmd.Process.Pid<<3|schedClock), &t); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", p.cmd.Process.Pid, err)
	}
	return float64(t.Nano()) / 1e9, nil
}

// rssAnon is the memory of the process that is no file, in bytes.
func (p *process) rssAnon() (float64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/status")
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
