package transcripts

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "kaas/server" // what the broker is built from: without it a result would be cached over a change
	"kaas/server/brokertest"
)

// settings are those that README.md demands of the broker under test.
var settings = []string{
	"num.partitions=1",
	"default.replication.factor=1",
	"kaas.compressed.batch.validation=full",
	"offsets.topic.num.partitions=5",
	"transaction.state.log.num.partitions=5",
	"group.initial.rebalance.delay.ms=0",
	"group.min.session.timeout.ms=1000",
	"group.max.size=4",
	"transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
}

const (
	atOnce          = 8               // scenarios; most of the time they wait
	pendingPatience = 2 * time.Second // nothing is served within any time in a pending scenario
)

var (
	workDir  string // of this test process
	buildNow = sync.OnceValues(func() (string, error) { return brokertest.Build(workDir) })
)

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(fmt.Sprint(atOnce))
	}
	os.Exit(func() int {
		var err error
		if workDir, err = os.MkdirTemp("", "kaas-transcripts-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(workDir)
		return m.Run()
	}())
}

// startBroker runs a broker until the end of t.
func startBroker(t *testing.T) (*brokertest.Broker, *Broker) {
	t.Helper()
	bin, err := buildNow()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--data-dir", t.TempDir()}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	process, err := brokertest.Start(bin, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.Stop(); err != nil {
			t.Error(err)
		}
	})
	b := &Broker{Plain: process.Addr}
	if err := b.Connect(); err != nil {
		t.Fatal(err)
	}
	return process, b
}

// tally counts scenarios by area.
type tally struct {
	mu             sync.Mutex // guards the maps
	passed, waited map[string]int
}

func (c *tally) add(area string, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waits {
		c.waited[area]++
	} else {
		c.passed[area]++
	}
}

// TestScenarios plays every scenario. Those in the table of pending ones must fail: the table only shrinks.
func TestScenarios(t *testing.T) {
	all, err := Load("testdata")
	if err != nil {
		t.Fatal(err)
	}
	reasons := pendingByName(t, all)
	counts := &tally{passed: map[string]int{}, waited: map[string]int{}}
	_, shared := startBroker(t)
	t.Cleanup(func() {
		areas := map[string]bool{}
		for _, sc := range all {
			areas[sc.Area] = true
		}
		for _, a := range sortedKeys(areas) {
			t.Logf("%-14s %3d pass %3d pending", a, counts.passed[a], counts.waited[a])
		}
	})
	for _, sc := range all {
		reason := reasons[sc.Name]
		t.Run(sc.Area+"/"+sc.Name, func(t *testing.T) {
			t.Parallel()
			faults := play(t, shared, sc, reason != "")
			switch {
			case reason == "" && faults != "":
				t.Errorf("settles: %s\n%s", sc.Settles, faults)
			case reason != "" && faults == "":
				t.Errorf("passes, but is in the table of pending scenarios (%s): take it out", reason)
			default:
				counts.add(sc.Area, reason != "")
			}
		})
	}
}

// play runs a scenario against the shared broker, or against one of its own where it needs that; a restart is done in
// both ways.
func play(t *testing.T, shared *Broker, sc *Scenario, pending bool) string {
	patience := time.Duration(0)
	if pending {
		patience = pendingPatience
	}
	if !sc.Restarts() {
		b := *shared
		if sc.Exclusive || namesInternalTopic(sc) {
			_, own := startBroker(t)
			b = *own
		}
		b.Patience = patience
		if need := b.Missing(sc); need != "" {
			return "needs " + need
		}
		return b.Play(sc)
	}
	var faults strings.Builder
	for _, kill := range []bool{true, false} {
		process, b := startBroker(t)
		b.Patience = patience
		b.Restart = func() error { return process.Restart(kill) }
		if f := b.Play(sc); f != "" {
			fmt.Fprintf(&faults, "restarted with kill=%v:\n%s", kill, f)
		}
	}
	return faults.String()
}

// namesInternalTopic: what the broker says of an internal topic depends on who else has been there.
func namesInternalTopic(sc *Scenario) bool {
	return slices.ContainsFunc(sc.Steps, func(st *step) bool { return strings.Contains(string(st.Request), `"__`) })
}

// pendingByName turns the table round and checks it against the scenarios.
func pendingByName(t *testing.T, all []*Scenario) map[string]string {
	t.Helper()
	known := map[string]bool{}
	for _, sc := range all {
		if known[sc.Name] {
			t.Errorf("two scenarios are named %s", sc.Name)
		}
		known[sc.Name] = true
	}
	reasons := map[string]string{}
	for reason, names := range notYet {
		for name := range strings.FieldsSeq(names) {
			if !known[name] || reasons[name] != "" {
				t.Errorf("%s: no such scenario, or twice in the table of pending ones", name)
			}
			reasons[name] = reason
		}
	}
	return reasons
}
