//go:build torture

package torture

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// txnDeed is what can be done in a round to a broker whose clients use transactions, or to these.
type txnDeed struct {
	name string
	do   func(e *txnEra)
}

var txnDeeds = []txnDeed{
	{"kill -9", onBroker(kill)},
	{"kill -9 twice", onBroker(func(e *era) { kill(e); kill(e) })},
	{"SIGTERM", onBroker(func(e *era) { e.rest(300 * time.Millisecond); e.must(e.process.Restart(false)) })},
	{"SIGSTOP and SIGCONT", onBroker(pause)},
	{"kill -9 while stopped", onBroker(killStopped)},
	{"unsynced data lost", onBroker(loseUnsynced)},
	{"unsynced data lost", onBroker(loseUnsynced)},
	{"slow disk", onBroker(slowDisk)},
	{"no space by rule", onBroker(noSpace)},
	{"failed write", onBroker(failedWrite)},
	{"failed sync of any log", onBroker(failedSyncs)},
	{"client killed", func(e *txnEra) { e.rest(300 * time.Millisecond); e.oneWriter().signal(e, syscall.SIGKILL) }},
	{"clients and broker killed", killAll},
	{"client stopped for longer than its transactions may take", stopClient},
	{"client that thinks it is alone", zombie},
	{"Apache's copier", func(e *txnEra) { e.java.run() }},
}

func onBroker(do func(*era)) func(*txnEra) { return func(e *txnEra) { e.t.Helper(); do(e.era) } }

func (e *txnEra) draw() txnDeed {
	all := txnDeeds[:len(txnDeeds):len(txnDeeds)]
	for _, d := range e.deedsHere() {
		all = append(all, txnDeed{d.name, onBroker(d.do)})
	}
	return all[e.rng.IntN(len(all))]
}

// failedSyncs fails a sync of any log, those of the coordinators as well, at times of several. What goes on does; a restart mends the rest.
func failedSyncs(e *era) {
	more := []string{"", "+"}[e.rng.IntN(2)]
	e.obey(nth(1+e.rng.IntN(9)) + more + " fdatasync of *.log: EIO")
	e.rest(time.Second)
	e.obey()
	e.rest(500 * time.Millisecond)
	kill(e)
}

func (e *txnEra) oneWriter() *writer { return e.writers[e.rng.IntN(len(e.writers))] }

// signal sends a signal to the process of a writer. It may have ended by itself.
func (w *writer) signal(e *txnEra, s syscall.Signal) {
	if p := w.process(); p != nil {
		_ = p.Signal(s)
	}
}

func killAll(e *txnEra) {
	e.t.Helper()
	e.rest(300 * time.Millisecond)
	for _, w := range e.writers {
		w.signal(e, syscall.SIGKILL)
	}
	kill(e.era)
}

// stopClient stops a client until its transaction is aborted by the broker.
func stopClient(e *txnEra) {
	e.rest(100 * time.Millisecond)
	w := e.oneWriter()
	p := w.process()
	if p == nil {
		return
	}
	_ = p.Signal(syscall.SIGSTOP)
	time.Sleep(txnTimeout + time.Second)
	_ = p.Signal(syscall.SIGCONT)
}

// zombie stops a client, lets another one under its transactional id go on, and has the first one come back.
func zombie(e *txnEra) {
	e.t.Helper()
	e.rest(100 * time.Millisecond)
	w := e.oneWriter()
	p := w.process()
	if p == nil {
		return
	}
	_ = p.Signal(syscall.SIGSTOP)
	from := e.told.progress(w.id)
	select {
	case w.next <- struct{}{}:
	case <-time.After(patience):
		e.t.Fatal("a writer without a process")
	}
	e.await("another client under the id", func() bool { return e.told.progress(w.id) > from })
	_ = p.Signal(syscall.SIGCONT)
}

const (
	javaCopied   = "copied-by-java" // topic of the copy that Apache's TransactionalMessageCopier makes
	javaFailures = 5                // of its processes, while nothing is done to them
)

// javaCopier runs Apache's TransactionalMessageCopier: it copies in transactions all that is there when it starts, aborting now and then. One that
// still runs when the next is wanted is killed.
type javaCopier struct {
	e     *txnEra
	lib   string // "": there are no jars of Apache's
	cmd   *exec.Cmd
	over  chan error
	said  []string // by the last one
	fails int
}

func newJavaCopier(e *txnEra) *javaCopier {
	j := &javaCopier{e: e}
	lib, err := filepath.Abs("../../.oracle/lib-3.7.2")
	e.must(err)
	if _, err = os.Stat(filepath.Join(lib, ".complete")); err == nil {
		_, err = exec.LookPath("java")
	}
	if err != nil {
		e.t.Logf("Apache's copier is left out: run .ci/java: %v", err)
		return j
	}
	j.lib = lib
	e.t.Cleanup(j.kill)
	return j
}

func (j *javaCopier) kill() {
	if j.cmd != nil {
		_ = j.cmd.Process.Kill()
		<-j.over
		j.cmd = nil
	}
}

// run starts it.
func (j *javaCopier) run() {
	j.kill()
	if j.lib == "" {
		return
	}
	j.over, j.said = make(chan error, 1), nil
	cmd := exec.Command("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-cp", filepath.Join(j.lib, "*"),
		"org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", j.e.process.Addr, "--input-topic", j.e.topic, "--input-partition", "0",
		"--output-topic", javaCopied, "--consumer-group", "java", "--transactional-id", "java", "--transaction-size", "50",
		"--transaction-timeout", fmt.Sprint(txnTimeout.Milliseconds()), "--group-mode", "--use-group-metadata", "--enable-random-aborts")
	out, err := cmd.StdoutPipe()
	j.e.must(err)
	j.e.must(cmd.Start())
	j.cmd = cmd
	over := j.over
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			j.said = append(j.said, lines.Text())
		}
		over <- cmd.Wait()
	}()
}

// again starts it when it has ended, and tells what it said if it fails too often. It counts markers as records that are still to be copied, so
// it may end, or not, when all is copied.
func (j *javaCopier) again() {
	j.e.t.Helper()
	select {
	case err := <-j.over:
		j.cmd = nil
		if j.fails++; err != nil && j.fails > javaFailures {
			j.e.t.Fatalf("Apache's copier fails: %v\n%s", err, strings.Join(j.said, "\n"))
		}
		j.run()
	default:
	}
}
