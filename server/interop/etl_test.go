//go:build interop

package interop

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"kaas/server/brokertest"
)

const (
	etlRecords  = 30_000 // that each chain moves
	etlEvery    = 3 * time.Second
	etlPatience = 5 * time.Minute
	dialAgain   = 20 * time.Millisecond
)

// waiting is a way to the broker that is there while the broker is not: it takes connections, and holds them until there is something behind
// it. Connections of a broker that was killed break. The suite takes a refused connection for a fault, and a broken one not.
type waiting struct {
	net.Listener
	ctx context.Context
	all sync.WaitGroup
}

func newWaiting(t *testing.T) *waiting {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &waiting{Listener: l, ctx: ctx}
	t.Cleanup(func() {
		cancel()
		l.Close()
		w.all.Wait()
	})
	return w
}

// serve leads connections to a broker.
func (w *waiting) serve(addr string) {
	w.all.Go(func() {
		for {
			c, err := w.Accept()
			if err != nil {
				return
			}
			w.all.Go(func() { w.lead(c, addr) })
		}
	})
}

func (w *waiting) lead(c net.Conn, addr string) {
	defer c.Close()
	broker, err := net.Dial("tcp", addr)
	for err != nil {
		select {
		case <-w.ctx.Done():
			return
		case <-time.After(dialAgain):
			broker, err = net.Dial("tcp", addr)
		}
	}
	defer broker.Close()
	stop := context.AfterFunc(w.ctx, func() { c.Close(); broker.Close() })
	defer stop()
	var both sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{c: broker, broker: c} {
		both.Go(func() {
			_, _ = io.Copy(to, from)             // either end may break at any time,
			_ = to.(*net.TCPConn).SetLinger(0)   // and a reset tells so: an end before the first answer
			_ = from.(*net.TCPConn).SetLinger(0) // looks to the client as if it should have used TLS
			to.Close()
			from.Close()
		})
	}
	both.Wait()
}

// TestFranzEtlKilled runs the transactional tests of the franz-go client, chains of groups that read, write and commit exactly once, while the broker
// is killed every few seconds.
func TestFranzEtlKilled(t *testing.T) {
	if *bootstrap != "" {
		t.Skip("a broker that was not started here is not killed")
	}
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	cell(t, "franz-go", "its own transactional tests while killed", func(t *testing.T) {
		way := newWaiting(t)
		addr, process := startBroker(t, "--set", "advertised.listeners=PLAINTEXT://"+way.Addr().String(),
			"--set", "group.initial.rebalance.delay.ms=0") // groups are to meet between two kills
		way.serve(addr)
		ctx, cancel := context.WithTimeout(t.Context(), etlPatience)
		defer cancel()
		suite := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-timeout", etlPatience.String(), "-run", "TestTxnEtl", "github.com/twmb/franz-go/pkg/kgo")
		suite.Env = append(os.Environ(), "KGO_SEEDS="+way.Addr().String(), "KGO_TEST_RF=1", "KGO_LOG_LEVEL=none", "KGO_TEST_RECORDS="+strconv.Itoa(etlRecords))
		var out []byte
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			out, err = suite.CombinedOutput()
		}()
		deaths := killUntil(t, process, done)
		passed := regexp.MustCompile(`--- PASS: TestTxnEtl/[^ ]+`).FindAll(out, -1)
		if err != nil || len(passed) == 0 {
			t.Fatalf("%v\n%s\n%s", err, out, process.Stderr())
		}
		t.Logf("%d kills; %s", deaths, passed)
	})
}

// killUntil restarts a broker every few seconds until done is closed, and says how often. It spares groups that are about to form: the suite takes
// every error of a join for a fault, and a join that is broken off, or whose member id died with the broker, is one.
func killUntil(t *testing.T, process *brokertest.Broker, done <-chan struct{}) (deaths int) {
	t.Helper()
	adm := kadm.NewClient(newClient(t, process.Addr))
	every := time.NewTicker(etlEvery)
	for {
		select {
		case <-done:
			return deaths
		case <-every.C:
		}
		for forming := true; forming; {
			groups, err := adm.ListGroups(newContext(t), "PreparingRebalance", "CompletingRebalance")
			if err != nil {
				t.Fatal(err)
			}
			if forming = len(groups) > 0; forming {
				select {
				case <-done:
					return deaths
				case <-time.After(dialAgain):
				}
			}
		}
		if err := process.Restart(true); err != nil {
			t.Fatal(err)
		}
		deaths++
	}
}
