// Package brokertest builds the kaas binary and runs it as a process of its own, for tests that want the real thing: its
// flags, its ready line, its signals, its data directory. It looks at the broker from outside and imports nothing of it.
//
// A broker started here never outlives the test process. What it writes to standard error is kept; a panic, a data race
// or an exit that nobody asked for is an error of Stop, Kill and Restart.
package brokertest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	readyTimeout = 30 * time.Second // generous: a loaded machine, a recovery
	stopTimeout  = 30 * time.Second
	keptStderr   = 64 << 10
)

// Build compiles ./cmd/kaas into dir, with the race detector when the test has it, and returns the path of the binary.
func Build(dir string) (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "kaas")
	args := []string{"build", "-o", bin}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/kaas")...)
	cmd.Dir = filepath.Dir(strings.TrimSpace(string(out)))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building kaas: %w\n%s", err, out)
	}
	return bin, nil
}

// Ready is the line that the broker prints when its ports are open.
type Ready struct {
	Listeners  map[string]string `json:"listeners"` // name to host:port
	ClusterID  string            `json:"clusterId"`
	NodeID     int               `json:"nodeId"`
	Durability string            `json:"durability"`
	Storage    string            `json:"storage"`
	DataDir    string            `json:"dataDir"`
	StartMs    float64           `json:"startMs"`
}

// Broker is one broker process and those that take its place after a restart.
type Broker struct {
	Ready  Ready
	Addr   string // of the PLAINTEXT listener; the same over restarts
	bin    string
	args   []string
	cmd    *exec.Cmd
	exited chan error
	stderr *tail
}

// Start runs bin with args on a free port of 127.0.0.1 and waits for its ready line. {addr} in args becomes host:port of it, for further
// listeners beside PLAINTEXT.
func Start(bin string, args ...string) (*Broker, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	b := &Broker{bin: bin, Addr: fmt.Sprintf("127.0.0.1:%d", port)}
	b.args = []string{"serve", "--listen", b.Addr}
	for _, a := range args {
		b.args = append(b.args, strings.ReplaceAll(a, "{addr}", b.Addr))
	}
	return b, b.start()
}

// freePort finds a port below those that the kernel hands out to clients, so that nobody takes it during a restart.
func freePort() (int, error) {
	const low, high = 12000, 32000
	var err error
	for range 100 {
		port := low + rand.Intn(high-low)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

func (b *Broker) start() error {
	b.stderr = &tail{}
	b.exited = make(chan error, 1)
	b.cmd = exec.Command(b.bin, b.args...)
	b.cmd.Stderr = b.stderr
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := b.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	started := make(chan error)
	line := make(chan []byte, 1)
	go func() {
		runtime.LockOSThread() // the death signal goes by the thread that started the process
		defer runtime.UnlockOSThread()
		err := b.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		r := bufio.NewReader(stdout)
		first, _ := r.ReadBytes('\n') // an error shows as a line that is no JSON
		line <- first
		_, _ = io.Copy(io.Discard, r)
		b.exited <- b.cmd.Wait()
	}()
	if err := <-started; err != nil {
		return err
	}
	select {
	case first := <-line:
		b.Ready = Ready{}
		if err := json.Unmarshal(first, &b.Ready); err != nil {
			_ = b.cmd.Process.Kill()
			return fmt.Errorf("broker did not start (%v): ready line %q\n%s", <-b.exited, first, b.stderr)
		}
	case <-time.After(readyTimeout):
		_ = b.cmd.Process.Kill()
		return fmt.Errorf("broker not ready after %v\n%s", readyTimeout, b.stderr)
	}
	if got := b.Ready.Listeners["PLAINTEXT"]; got != b.Addr {
		return errors.Join(fmt.Errorf("ready line: want PLAINTEXT at %s, got %q", b.Addr, b.Ready.Listeners), b.Kill())
	}
	return nil
}

// Kill stops the broker with SIGKILL.
func (b *Broker) Kill() error { return b.Die(syscall.SIGKILL) }

// Die stops the broker with a signal at which it kills itself.
func (b *Broker) Die(s syscall.Signal) error {
	if err := b.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("broker had ended before it was killed: %w\n%s", err, b.stderr)
	}
	return b.wait(func(err error) error {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
			return nil
		}
		return fmt.Errorf("broker had ended before it was killed: %v", err)
	})
}

// Stop stops the broker with SIGTERM and wants exit status 0.
func (b *Broker) Stop() error {
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("broker had ended before it was stopped: %w\n%s", err, b.stderr)
	}
	return b.wait(func(err error) error {
		if err != nil {
			return fmt.Errorf("broker after SIGTERM: %w", err)
		}
		return nil
	})
}

func (b *Broker) wait(judge func(error) error) error {
	select {
	case err := <-b.exited:
		err = judge(err)
		if text := b.stderr.String(); err != nil || strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
			return fmt.Errorf("%v\nstandard error of the broker:\n%s", err, text)
		}
		return nil
	case <-time.After(stopTimeout):
		_ = b.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines are worth seeing
		<-b.exited
		return fmt.Errorf("broker did not end within %v\n%s", stopTimeout, b.stderr)
	}
}

// Restart stops the broker, by SIGKILL when kill is set, and starts it on the same port with the same arguments.
func (b *Broker) Restart(kill bool) error {
	stop := b.Stop
	if kill {
		stop = b.Kill
	}
	if err := stop(); err != nil {
		return err
	}
	return b.start()
}

// Again starts the broker on the same port with the same arguments after Kill or Stop, or after a start that failed.
func (b *Broker) Again() error { return b.start() }

// Stderr returns the last of what the broker wrote to standard error since it started.
func (b *Broker) Stderr() string { return b.stderr.String() }

// PID returns the process id.
func (b *Broker) PID() int { return b.cmd.Process.Pid }

// tail keeps the last bytes written to it.
type tail struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b.Write(p)
	if over := t.b.Len() - keptStderr; over > 0 {
		t.b.Next(over)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}
