//go:build torture

package torture

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kaas/server/brokertest"
)

var (
	seedFlag = flag.Uint64("seed", 0, "`seed` of the plan; 0: drawn, and printed")
	rounds   = flag.Int("rounds", 20, "rounds in all")
	minutes  = flag.Float64("minutes", 0, "go on for so long instead of -rounds")
)

const (
	partitions  = 4
	producers   = 3
	eraRounds   = 12               // rounds of one broker; what it wrote is judged at their end
	newReaders  = 5                // rounds after which another reader starts
	roundAcks   = 20               // acknowledgements of each partition that a round waits for
	patience    = 60 * time.Second // for one step; only a broken broker needs it
	faultsShown = 20
)

// era is one broker with its topic, its clients and its rounds.
type era struct {
	t       *testing.T
	ctx     context.Context
	rng     *rand.Rand
	h       *history
	process *brokertest.Broker
	disk    *smallDisk // it or volume is where the data directory is; when both are nil, on the file system of the temporary directory
	volume  *volume
	rules   string // file name
	ruleSet int    // number of the rules in it
	topic   string
	admin   *kgo.Client
}

// TestTorture: whatever is done to the broker, acknowledged records are there, in order, once, and what was read stays.
func TestTorture(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	until := time.Now().Add(time.Duration(*minutes * float64(time.Minute)))
	for n, done := 0, 0; !t.Failed(); n++ {
		todo := min(eraRounds, *rounds-done)
		if *minutes > 0 {
			todo = eraRounds
			if time.Now().After(until) {
				break
			}
		} else if todo == 0 {
			break
		}
		t.Run(fmt.Sprintf("era %d", n), func(t *testing.T) {
			runEra(t, rand.New(rand.NewPCG(seed, uint64(n))), todo, place(n)%places)
		})
		if done += todo; t.Failed() {
			t.Logf("failed within the first %d rounds of -seed %d", done, seed)
		}
	}
}

func runEra(t *testing.T, rng *rand.Rand, todo int, on place) {
	e := newEra(t, rng, on)
	work, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for w := range producers {
		c, name := newProducer(t, e.process.Addr, e.h), fmt.Sprintf("%08x.%d", rng.Uint32(), w)
		writers.Go(func() {
			if err := produce(work, c, e.h, e.topic, name, stop); err != nil && work.Err() == nil {
				t.Error(err)
			}
		})
	}
	done := make(chan struct{})
	clients.Go(func() { writers.Wait(); close(done) })
	again, did := newRepeater(e, fmt.Sprintf("%08x.again", rng.Uint32())), map[string]int{}
	for round := range todo {
		if round%newReaders == 0 {
			c, name := newReader(t, e.process.Addr, e.topic), fmt.Sprintf("reader of round %d", round)
			clients.Go(func() { tail(work, c, e.h, name) })
		}
		what := e.draw()
		did[what.name]++
		began := time.Now()
		what.do(e)
		e.goesOn(fmt.Sprintf("round %d, %s", round, what.name))
		again.round()
		t.Logf("round %d: %s, %.1f s", round, what.name, time.Since(began).Seconds())
	}
	close(stop)
	e.await("the last acknowledgements", func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	for _, kill := range []bool{false, true} {
		e.must(e.process.Restart(kill))
		again.round()
	}
	ctx, end := context.WithTimeout(t.Context(), patience)
	defer end()
	e.must(readToEnd(ctx, t, e.process.Addr, e.topic, e.h, "the last reader"))
	cancel()
	clients.Wait()
	e.report(did)
}

// place is where an era has its data directory.
type place int

const (
	onTemporary place = iota
	onSmallDisk
	onVolume
	places
)

func newEra(t *testing.T, rng *rand.Rand, on place) *era {
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e := &era{t: t, ctx: t.Context(), rng: rng, h: newHistory(), rules: filepath.Join(t.TempDir(), "rules"), topic: "torture"}
	dir := filepath.Join(t.TempDir(), "data")
	switch on {
	case onSmallDisk:
		if e.disk, err = newSmallDisk(t, smallDiskBytes); err != nil {
			t.Logf("no small disk, so none will be full: a file system cannot be mounted here: %v", err)
		} else {
			dir = filepath.Join(e.disk.root, "data")
		}
	case onVolume:
		if e.volume, err = newVolume(t); err != nil {
			t.Logf("no volume, so no power cut: %v", err)
		} else {
			dir = filepath.Join(e.volume.root, "data")
		}
	}
	e.must(os.WriteFile(e.rules, []byte("0\n"), 0o644))
	e.process, err = brokertest.Start(bin, "--data-dir", dir, "--rules", e.rules)
	e.must(err)
	t.Cleanup(func() {
		_ = syscall.Kill(e.process.PID(), syscall.SIGCONT)
		if err := e.process.Kill(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	e.admin = newClient(t, e.process.Addr)
	segment := "300000" // rolls now and then
	_, err = kadm.NewClient(e.admin).CreateTopic(e.ctx, partitions, 1, map[string]*string{"segment.bytes": &segment}, e.topic)
	e.must(err)
	return e
}

// must ends the test for an error.
func (e *era) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// await waits until ok.
func (e *era) await(what string, ok func() bool) {
	e.t.Helper()
	e.awaitMore(patience, what, func() (bool, int) { return ok(), 0 })
}

// awaitMore waits until ok, and for as long as the count that comes with it grows now and then: on a busy machine much takes long.
func (e *era) awaitMore(patience time.Duration, what string, ok func() (bool, int)) {
	e.t.Helper()
	until, most := time.Now().Add(patience), 0
	for done, n := ok(); !done; done, n = ok() {
		if n > most {
			until, most = time.Now().Add(patience), n
		}
		if time.Now().After(until) {
			e.t.Fatalf("waited %v for %s; standard error of the broker:\n%s", patience, what, e.process.Stderr())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// rest does nothing for a time between zero and most.
func (e *era) rest(most time.Duration) { time.Sleep(time.Duration(e.rng.Int64N(int64(most)))) }

// goesOn waits until every partition takes more.
func (e *era) goesOn(after string) {
	e.t.Helper()
	var from [partitions]int
	for p := range from {
		from[p], _ = e.h.acked(int32(p))
	}
	e.await("acknowledgements after "+after, func() bool {
		for p := range from {
			if n, _ := e.h.acked(int32(p)); n < from[p]+roundAcks {
				return false
			}
		}
		return true
	})
}

// obey makes the broker follow rules from now on.
func (e *era) obey(rules ...string) {
	e.t.Helper()
	e.write(rules...)
	e.must(syscall.Kill(e.process.PID(), syscall.SIGUSR1))
	e.await("the broker to read its rules", func() bool {
		return strings.Contains(e.process.Stderr(), rulesSet(fmt.Sprint(e.ruleSet)))
	})
}

// write makes the broker follow rules from its next start on.
func (e *era) write(rules ...string) {
	e.t.Helper()
	e.ruleSet++
	e.must(os.WriteFile(e.rules, fmt.Appendf(nil, "%d\n%s", e.ruleSet, strings.Join(rules, "\n")), 0o644))
}

func (e *era) report(did map[string]int) {
	e.t.Helper()
	for i, f := range e.h.judge() {
		if i == faultsShown {
			e.t.Error("and more")
			break
		}
		e.t.Errorf("%s: %s", f.kind, f.text)
	}
	acked, read := 0, 0
	for p := range int32(partitions) {
		n, _ := e.h.acked(p)
		acked += n
		read += len(e.h.read[p])
	}
	e.t.Logf("%v; %d records acknowledged, %d read by all readers together", did, acked, read)
}
