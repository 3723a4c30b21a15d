//go:build interop

package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kaas/server/brokertest"
)

const (
	streamsPartitions = 2
	streamsWords      = 40 // different ones
	streamsKeys       = 20 // of the join
	streamsLines      = 60 // a portion has so many of each input
	streamsWindow     = 3 * time.Second
	streamsSpan       = time.Minute // in which the times of the join's records lie
	streamsPatience   = 2 * time.Minute
	killsPerRound     = 10 // of -kills, for one round of the application
)

// streams is an application (clients/CountAndJoin.java) with its inputs and what it has to make of them.
type streams struct {
	t       *testing.T
	name    string
	addr    string
	classes string
	process *brokertest.Broker // nil: not ours
	rng     *rand.Rand
	began   time.Time // the first time that a record can have
	in      *kgo.Client
	lines   int
	words   map[string]int    // how often each was written
	sides   [2][]side         // of the join: left and right
	pairs   map[string]int    // by "KEY LEFT+RIGHT"
	lives   int               // instances so far
	out     map[string]string // by kind, the topic with the output

	mu   sync.Mutex     // guards seen
	seen map[string]int // committed records by topic, as a reader that stays sees them
}

// side is a record of one side of the join.
type side struct {
	key, value string
	at         time.Time
}

// instance is one process of the application.
type instance struct {
	dir    string // of its state
	cmd    *exec.Cmd
	over   chan error
	mu     sync.Mutex // guards states
	states []string   // the lines that it printed
	noise  strings.Builder
}

func newStreams(t *testing.T) *streams {
	home, err := javaHome()
	if err != nil {
		t.Fatal(err)
	}
	s := &streams{t: t, name: fmt.Sprintf("streams-%08x", rand.Uint32()), classes: t.TempDir(), rng: rand.New(rand.NewSource(7)), began: time.Now().Truncate(time.Millisecond),
		words: map[string]int{}, pairs: map[string]int{}, seen: map[string]int{}}
	if out, err := exec.Command("javac", "-d", s.classes, "-cp", filepath.Join(home, "lib-3.7.2", "*"), "clients/CountAndJoin.java").CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	s.addr, s.process = startBroker(t, "--set", "group.initial.rebalance.delay.ms=0")
	adm := kadm.NewClient(newClient(t, s.addr))
	s.out = map[string]string{"counts": s.name + "-counts", "pairs": s.name + "-pairs"}
	for _, suffix := range []string{"-lines", "-left", "-right", "-counts", "-pairs"} {
		if _, err := adm.CreateTopic(newContext(t), streamsPartitions, 1, nil, s.name+suffix); err != nil {
			t.Fatal(err)
		}
	}
	s.in = newClient(t, s.addr, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	s.watch()
	return s
}

// watch starts the reader that stays.
func (s *streams) watch() {
	c := newClient(s.t, s.addr, kgo.ConsumeTopics(s.out["counts"], s.out["pairs"]), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond))
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() {
		for ctx.Err() == nil {
			fs := c.PollFetches(ctx)
			s.mu.Lock()
			fs.EachRecord(func(r *kgo.Record) { s.seen[r.Topic]++ })
			s.mu.Unlock()
		}
	})
	s.t.Cleanup(func() { cancel(); over.Wait() })
}

// write adds a portion to every input.
func (s *streams) write() {
	s.t.Helper()
	var rs []*kgo.Record
	add := func(topic string, partition int, key, value string, at time.Time) {
		rs = append(rs, &kgo.Record{Topic: s.name + topic, Partition: int32(partition), Key: []byte(key), Value: []byte(value), Timestamp: at})
	}
	for range streamsLines {
		line := make([]string, 1+s.rng.Intn(4))
		for i := range line {
			line[i] = fmt.Sprint("w", s.rng.Intn(streamsWords))
			s.words[line[i]]++
		}
		add("-lines", s.lines%streamsPartitions, "", strings.Join(line, " "), s.began)
		s.lines++
		for i, topic := range []string{"-left", "-right"} {
			k := s.rng.Intn(streamsKeys)
			r := side{fmt.Sprint("k", k), fmt.Sprint(topic[1:2], len(s.sides[i])), s.began.Add(time.Duration(s.rng.Int63n(int64(streamsSpan)))).Truncate(time.Millisecond)}
			add(topic, k%streamsPartitions, r.key, r.value, r.at)
			for _, other := range s.sides[1-i] {
				if apart := other.at.Sub(r.at).Abs(); other.key != r.key || apart > streamsWindow {
					continue
				}
				pair := []string{r.value, other.value}
				s.pairs[fmt.Sprintf("%s %s+%s", r.key, pair[i], pair[1-i])]++
			}
			s.sides[i] = append(s.sides[i], r)
		}
	}
	if err := s.in.ProduceSync(newContext(s.t), rs...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
}

// want is how many records the outputs must have: one for each word that was written, one for each pair.
func (s *streams) want() (counts, pairs int) {
	for _, n := range s.words {
		counts += n
	}
	return counts, len(s.pairs)
}

// await waits until ok says so of the records of both outputs that a reader has seen.
func (s *streams) await(what string, ok func(counts, pairs int) bool, of ...*instance) {
	s.t.Helper()
	for end := time.Now().Add(streamsPatience); ; time.Sleep(20 * time.Millisecond) {
		s.mu.Lock()
		counts, pairs := s.seen[s.out["counts"]], s.seen[s.out["pairs"]]
		s.mu.Unlock()
		if ok(counts, pairs) {
			return
		}
		if wantCounts, wantPairs := s.want(); time.Now().After(end) {
			for _, i := range of {
				s.t.Logf("instance with %s: %v\n%s", i.dir, i.entered(), i.noise.String())
			}
			if s.process != nil {
				s.t.Log(s.process.Stderr())
			}
			s.t.Fatalf("waited for %s; seen are %d counts of %d, %d pairs of %d", what, counts, wantCounts, pairs, wantPairs)
		}
	}
}

// awaitAll waits for everything that the inputs so far must give.
func (s *streams) awaitAll(what string, of ...*instance) {
	s.t.Helper()
	s.await(what, func(counts, pairs int) bool {
		wantCounts, wantPairs := s.want()
		return counts >= wantCounts && pairs >= wantPairs
	}, of...)
}

// awaitMore waits until some more is seen than now.
func (s *streams) awaitMore(what string, of ...*instance) {
	s.t.Helper()
	s.mu.Lock()
	before := s.seen[s.out["counts"]]
	s.mu.Unlock()
	s.await(what, func(counts, _ int) bool { return counts > before }, of...)
}

// run starts an instance; dir is the state of an earlier one, or "" for none.
func (s *streams) run(dir string) *instance {
	s.t.Helper()
	home, err := javaHome()
	if err != nil {
		s.t.Fatal(err)
	}
	if dir == "" {
		s.lives++
		dir = filepath.Join(s.t.TempDir(), strconv.Itoa(s.lives))
	}
	i := &instance{dir: dir, over: make(chan error, 1)}
	i.cmd = exec.Command("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Djava.io.tmpdir="+s.classes,
		"-Dlog4j.configuration=file:"+filepath.Join(home, "tools-log4j.properties"),
		"-cp", s.classes+":"+filepath.Join(home, "lib-3.7.2", "*"), "CountAndJoin", s.addr, s.name, dir, strconv.FormatInt(streamsWindow.Milliseconds(), 10))
	i.cmd.Stderr = &i.noise
	i.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := i.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the death signal goes by the thread that started the process
		defer runtime.UnlockOSThread()
		err := i.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			i.mu.Lock()
			i.states = append(i.states, lines.Text())
			i.mu.Unlock()
		}
		i.over <- i.cmd.Wait()
	}()
	if err := <-started; err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = i.cmd.Process.Kill() })
	return i
}

// entered are the states that an instance has been in.
func (i *instance) entered() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]string(nil), i.states...)
}

// running waits until an instance has its share of the partitions, restored from the changelogs.
func (s *streams) running(i *instance) {
	s.t.Helper()
	s.await("an instance to run", func(int, int) bool {
		states := i.entered()
		return len(states) > 0 && states[len(states)-1] == "RUNNING"
	}, i)
}

// kill ends an instance with SIGKILL, at once.
func (s *streams) kill(i *instance) {
	s.t.Helper()
	if err := i.cmd.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	<-i.over
}

// stop closes an instance as an operator does.
func (s *streams) stop(i *instance) {
	s.t.Helper()
	if err := i.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := <-i.over; !errors.As(err, &exit) || exit.ExitCode() != 128+int(syscall.SIGTERM) {
		s.t.Fatalf("stopped: %v\n%s", err, i.noise.String())
	}
	if states := i.entered(); !slices.Contains(states, "closed in time: true") {
		s.t.Errorf("a stopped instance was %v\n%s", states, i.noise.String())
	}
}

// judge compares the outputs, as read_committed sees them, with what the inputs must give: for each word the counts 1, 2, 3… in that order,
// once each; each pair once.
func (s *streams) judge() {
	s.t.Helper()
	last := map[string]int{}
	for p, rs := range readCommitted(s.t, s.addr, s.out["counts"]) {
		for _, r := range rs {
			if r.Attrs.IsControl() {
				continue
			}
			word := string(r.Key)
			if last[word]++; string(r.Value) != strconv.Itoa(last[word]) {
				s.t.Errorf("partition %d offset %d: count %s of %s, want %d", p, r.Offset, r.Value, word, last[word])
				last[word], _ = strconv.Atoi(string(r.Value))
			}
		}
	}
	for word, n := range s.words {
		if last[word] != n {
			s.t.Errorf("the last count of %s is %d, want %d", word, last[word], n)
		}
	}
	got := map[string]int{}
	for _, rs := range readCommitted(s.t, s.addr, s.out["pairs"]) {
		for _, r := range rs {
			if !r.Attrs.IsControl() {
				got[fmt.Sprintf("%s %s", r.Key, r.Value)]++
			}
		}
	}
	for pair, n := range s.pairs {
		if got[pair] != n {
			s.t.Errorf("pair %s is there %d times, want %d", pair, got[pair], n)
		}
		delete(got, pair)
	}
	for pair, n := range got {
		s.t.Errorf("pair %s is there %d times, want none", pair, n)
	}
	for _, topic := range s.out {
		stable(s.t, s.addr, topic)
	}
}

// topics checks what the application made for itself: settings, as it asks for them, and that what it has read of its own is deleted.
func (s *streams) topics() {
	s.t.Helper()
	adm := kadm.NewClient(newClient(s.t, s.addr))
	repartition := s.name + "-words-repartition"
	for topic, settings := range map[string]map[string]string{
		repartition:                                 {"cleanup.policy": "delete", "segment.bytes": "52428800", "retention.ms": "-1", "message.timestamp.type": "CreateTime"},
		s.name + "-words-changelog":                 {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"},
		s.name + "-pairs-this-join-store-changelog": {"cleanup.policy": "delete", "retention.ms": "172806000"},
	} {
		got, err := adm.DescribeTopicConfigs(newContext(s.t), topic)
		if err != nil {
			s.t.Fatal(err)
		}
		if err := got[0].Err; err != nil {
			s.t.Errorf("%s: %v", topic, err)
			continue
		}
		for key, want := range settings {
			for _, c := range got[0].Configs {
				if c.Key == key && c.MaybeValue() != want {
					s.t.Errorf("%s has %s=%s, want %s", topic, key, c.MaybeValue(), want)
				}
			}
		}
	}
	starts, err := adm.ListStartOffsets(newContext(s.t), repartition)
	if err != nil {
		s.t.Fatal(err)
	}
	starts.Each(func(o kadm.ListedOffset) {
		if o.Offset == 0 {
			s.t.Errorf("%s partition %d begins at 0: what was read is not deleted", repartition, o.Partition)
		}
	})
}

// TestJavaStreams: a Kafka Streams application counts words and joins two topics exactly once, while one of two instances is killed, the broker is killed,
// and state is restored from changelogs because its directory is gone. Short: one round.
func TestJavaStreams(t *testing.T) {
	t.Parallel()
	s := newStreams(t)
	rounds := max(1, *kills/killsPerRound)
	cell(t, "Kafka Streams", "exactly_once_v2", func(t *testing.T) {
		s.t = t
		s.write()
		a := s.run("")
		s.awaitAll("the first portion", a)
		for round := range rounds {
			s.round(a, round)
			a = s.run("") // no state: it comes from the changelogs
			s.running(a)
			s.write()
			s.awaitAll("what an instance without its state makes", a)
		}
		s.stop(a)
		s.topics()
		s.judge()
		counts, pairs := s.want()
		t.Logf("%d rounds: %d counts of %d words, %d pairs", rounds, counts, len(s.words), pairs)
	})
}

// round adds an instance to a, kills a, and then the broker, in the middle of their work; at the end no instance runs.
func (s *streams) round(a *instance, round int) {
	s.t.Helper()
	b := s.run("")
	s.running(b)
	s.write()
	s.awaitMore("two instances", a, b)
	s.write()
	time.Sleep(time.Duration(rand.Int63n(int64(300 * time.Millisecond)))) // what is killed when is a matter of chance
	s.kill(a)
	s.write()
	if s.process != nil {
		if round%2 == 1 { // and not only while the group waits for the one that was killed
			s.awaitMore("the one that is left", b)
		}
		s.write()
		time.Sleep(time.Duration(rand.Int63n(int64(300 * time.Millisecond))))
		if err := s.process.Restart(true); err != nil {
			s.t.Fatal(err)
		}
	}
	s.write()
	s.awaitAll("what the other one makes of it", b)
	s.stop(b)
	for _, i := range []*instance{a, b} {
		if err := os.RemoveAll(i.dir); err != nil {
			s.t.Fatal(err)
		}
	}
}
