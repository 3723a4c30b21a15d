//go:build torture

package torture

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	checker "kaas/server/history"
)

const (
	txnWriters   = 3
	roundCommits = 3            // of each writer, that a round waits for
	txnCopiers   = 2            // members of a group that copies
	copyPatience = 5 * patience // for a copy that does not grow: a JVM on a busy machine takes more than a minute to start
)

// txnEra is one broker with clients that write, copy and read in transactions.
type txnEra struct {
	*era
	told    *txnHistory
	writers []*writer
	java    *javaCopier
	copied  string // topic with the copy that franz-go makes
}

// TestTransactions: whatever is done to the broker and to its clients, transactions are whole or absent, once and in order, as their producers
// were told, and none stays open.
func TestTransactions(t *testing.T) {
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
		}
		if todo <= 0 || *minutes > 0 && time.Now().After(until) {
			break
		}
		t.Run(fmt.Sprintf("era %d", n), func(t *testing.T) {
			runTxnEra(t, rand.New(rand.NewPCG(seed, uint64(n))), todo, place(n)%places)
		})
		if done += todo; t.Failed() {
			t.Logf("failed within the first %d rounds of -seed %d", done, seed)
		}
	}
}

func runTxnEra(t *testing.T, rng *rand.Rand, todo int, on place) {
	e := &txnEra{era: newEra(t, rng, on), told: newTxnHistory(), copied: "copied-by-franz-go"}
	e.java = newJavaCopier(e)
	for _, topic := range []string{e.copied, javaCopied} {
		_, err := kadm.NewClient(e.admin).CreateTopic(e.ctx, partitions, 1, nil, topic)
		e.must(err)
	}
	work, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	defer e.tell()
	for i := range txnWriters {
		w := &writer{e: e, id: fmt.Sprint("w", i), next: make(chan struct{}), stop: make(chan struct{}), over: make(chan struct{})}
		e.writers = append(e.writers, w)
		clients.Go(func() { w.run(work) })
	}
	for i := range txnCopiers {
		clients.Go(func() { e.copy(work, fmt.Sprint("copier-", i)) })
	}
	did, readers := map[string]int{}, []string(nil)
	for round := range todo {
		if round%newReaders == 0 {
			c, name := newCommittedReader(t, e.process.Addr, e.topic), fmt.Sprintf("reader of round %d", round)
			readers = append(readers, name)
			clients.Go(func() { e.told.tail(work, c, name) })
		}
		what := e.draw()
		did[what.name]++
		began := time.Now()
		what.do(e)
		e.goesOn(fmt.Sprintf("round %d, %s", round, what.name), readers[0])
		t.Logf("round %d: %s, %.1f s", round, what.name, time.Since(began).Seconds())
	}
	for _, w := range e.writers {
		close(w.stop)
	}
	for _, w := range e.writers {
		e.await("the end of the writers", func() bool {
			select {
			case <-w.over:
				return true
			default:
				return false
			}
		})
	}
	e.calm(e.topic)
	e.must(e.process.Restart(true))
	e.judge(readers, did, func() { cancel(); clients.Wait() })
}

// tell says of a test that failed what the clients did last, what the coordinator knows, and what the broker said.
func (e *txnEra) tell() {
	if !e.t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), txnPatience)
	defer cancel()
	described, err := kadm.NewClient(e.admin).DescribeTransactions(ctx)
	for _, d := range described.Sorted() {
		e.t.Logf("%+v", d)
	}
	e.t.Logf("%v; standard error of the broker:\n%s", err, e.process.Stderr())
	e.told.mu.Lock()
	defer e.told.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(e.told.last)) {
		e.t.Logf("%s, last: %s", name, e.told.last[name])
	}
}

// goesOn waits until every writer has committed more, and a reader has seen more of every partition.
func (e *txnEra) goesOn(after, reader string) {
	e.t.Helper()
	for _, w := range e.writers {
		from := e.told.progress(w.id)
		e.await(fmt.Sprintf("commits of %s after %s", w.id, after), func() bool { return e.told.progress(w.id) >= from+roundCommits })
	}
	from := e.told.lengths(reader)
	e.await("a read_committed reader after "+after, func() bool {
		for p, n := range e.told.lengths(reader) {
			if n <= from[p] {
				return false
			}
		}
		return true
	})
}

// calm waits until no transaction is open in a topic: the last stable offset is the end.
func (e *txnEra) calm(topic string) {
	e.t.Helper()
	adm := kadm.NewClient(e.admin)
	e.await("the last stable offsets of "+topic, func() bool {
		stable, err := adm.ListCommittedOffsets(e.ctx, topic)
		e.must(errors.Join(err, stable.Error()))
		ends, err := adm.ListEndOffsets(e.ctx, topic)
		e.must(errors.Join(err, ends.Error()))
		same := true
		ends.Each(func(o kadm.ListedOffset) {
			if s, _ := stable.Lookup(topic, o.Partition); s.Offset != o.Offset {
				same = false
			}
		})
		return same
	})
}

// judge reads everything and holds it against what was told. Clients that read and copy go on until the copies are whole.
func (e *txnEra) judge(readers []string, did map[string]int, quit func()) {
	e.t.Helper()
	read := func(topic string, level kgo.IsolationLevel) map[int32][]checker.Record {
		ctx, end := context.WithTimeout(e.ctx, patience)
		defer end()
		logs, err := e.told.readLog(ctx, e.t, e.process.Addr, topic, level)
		if err != nil {
			e.t.Fatalf("%s: %v", topic, err)
		}
		return logs
	}
	v := checker.Judge(e.told.txns, read(e.topic, kgo.ReadUncommitted()))
	all := 0
	for p := range int32(partitions) {
		all += len(v.Committed(p))
	}
	for p, log := range read(e.topic, kgo.ReadCommitted()) {
		v.Reader("the last reader", p, data(log), true)
	}
	e.tails(v)
	if e.report(v); e.t.Failed() {
		return // copies may never be whole
	}
	copies := []string{e.copied}
	if e.java.lib != "" {
		copies = append(copies, javaCopied)
		e.java.run()
	}
	for _, topic := range copies {
		e.awaitMore(copyPatience, "the whole copy in "+topic, func() (bool, int) {
			if topic == javaCopied {
				e.java.again()
			}
			n := 0
			for _, log := range read(topic, kgo.ReadCommitted()) {
				n += len(data(log))
			}
			return n >= all, n
		})
		for p, log := range read(topic, kgo.ReadCommitted()) {
			v.Reader(topic, p, data(log), true)
		}
	}
	e.java.kill()
	quit()
	for _, topic := range copies {
		e.calm(topic)
	}
	e.tails(v)
	e.report(v)
	told := map[checker.End]int{}
	for _, x := range e.told.txns {
		told[x.Told]++
	}
	lives := 0
	for _, w := range e.writers {
		lives += w.life
	}
	e.t.Logf("%v; %d transactions (%v) of %d processes, %d records committed; %d readers; copies %v", did, len(e.told.txns), told, lives, all, len(readers), copies)
}

// tails judges what readers have seen so far.
func (e *txnEra) tails(v *checker.Verdict) {
	e.told.mu.Lock()
	seen := maps.Clone(e.told.seen) // what grows is appended
	e.told.mu.Unlock()
	for at, records := range seen {
		v.Reader(at.reader, at.partition, e.told.records(records), false)
	}
}

// report tells the faults that are known, and forgets them.
func (e *txnEra) report(v *checker.Verdict) {
	e.t.Helper()
	e.told.mu.Lock()
	defer e.told.mu.Unlock()
	for i, f := range append(e.told.faults, v.Faults...) {
		if i == faultsShown {
			e.t.Error("and more")
			break
		}
		e.t.Errorf("%s: %s", f.Kind, f.Text)
	}
	e.told.faults, v.Faults = nil, nil
}

// copy copies the topic exactly once until ctx ends. A client that got a fatal error begins anew.
func (e *txnEra) copy(ctx context.Context, id string) {
	for ctx.Err() == nil {
		s, err := kgo.NewGroupTransactSession(append(quick(e.process.Addr),
			kgo.TransactionalID(id), kgo.TransactionTimeout(txnTimeout), kgo.ConsumerGroup("copiers"), kgo.ConsumeTopics(e.topic),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond),
			kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.ProduceRequestTimeout(time.Second), kgo.MaxProduceRequestsInflightPerBroker(1),
			kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond))...)
		if err != nil {
			e.told.fail(misanswered, "copier: %v", err)
			return
		}
		for err == nil && ctx.Err() == nil {
			err = copySome(ctx, s, e.copied)
		}
		s.Close()
	}
}

// copySome is one transaction, if there is something to copy.
func copySome(ctx context.Context, s *kgo.GroupTransactSession, to string) error {
	poll, done := context.WithTimeout(ctx, 100*time.Millisecond)
	fs := s.PollFetches(poll)
	done()
	if fs.NumRecords() == 0 {
		return nil
	}
	if err := s.Begin(); err != nil {
		return err
	}
	failed := kgo.AbortingFirstErrPromise(s.Client())
	fs.EachRecord(func(r *kgo.Record) {
		s.Produce(ctx, &kgo.Record{Topic: to, Partition: r.Partition, Value: r.Value}, failed.Promise())
	})
	end, cancel := context.WithTimeout(ctx, txnPatience)
	defer cancel()
	_, err := s.End(end, failed.Err() == nil)
	return err
}

// writer is a transactional id and the processes that write under it, one after the other; at times an old one lives on.
type writer struct {
	e    *txnEra
	id   string
	life int           // processes so far
	next chan struct{} // asks for another process beside the one that is there
	stop chan struct{} // closed: no more transactions
	over chan struct{} // closed: no process is left

	mu  sync.Mutex // guards now
	now *exec.Cmd
}

// pid is the process of now, for signals; one that has ended takes none.
func (w *writer) process() *os.Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now == nil {
		return nil
	}
	return w.now.Process
}

// run starts a process whenever there is none, until stop or the end of ctx.
func (w *writer) run(ctx context.Context) {
	defer close(w.over)
	var all sync.WaitGroup
	defer all.Wait()
	for stopped := false; !stopped; {
		over := make(chan error, 1)
		cmd, err := w.start(&all, over)
		if err != nil {
			w.e.told.fail(misanswered, "a client does not start: %v", err)
			return
		}
		defer func() { _ = cmd.Process.Kill() }()
		select {
		case err = <-over:
			if code := cmd.ProcessState.ExitCode(); code != givenUpExit && code != -1 {
				w.e.told.fail(misanswered, "a client ended: %v", err)
				return
			}
		case <-w.next:
		case <-w.stop:
			stopped = true
			_ = cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-over:
			case <-ctx.Done():
			}
		case <-ctx.Done():
			stopped = true
		}
	}
}

// start starts the next process and hears its story until it ends, which over tells.
func (w *writer) start(all *sync.WaitGroup, over chan<- error) (*exec.Cmd, error) {
	bin, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w.life++
	name := fmt.Sprintf("%s.%d", w.id, w.life)
	cmd := exec.Command(bin, writeCommand, "-addr", w.e.process.Addr, "-topic", w.e.topic, "-id", w.id, "-name", name, "-of", fmt.Sprint(w.life))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	all.Go(func() {
		runtime.LockOSThread() // the death signal goes by the thread that started the process
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if err := w.e.told.hear(w.id, name, lines.Text()); err != nil {
				w.e.told.fail(misanswered, "%v", err)
			}
		}
		over <- cmd.Wait()
	})
	if err := <-started; err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = cmd
	return cmd, nil
}
