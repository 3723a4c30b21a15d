//go:build torture

package torture

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// writeCommand as the first argument makes the test binary a client that writes in transactions.
const writeCommand = "write-transactions"

const (
	txnTimeout    = 3 * time.Second  // transaction.timeout.ms of all clients
	txnPatience   = 30 * time.Second // for one operation of a client
	txnRecords    = 6                // a transaction has at most so many
	txnPause      = 5 * time.Millisecond
	commitsAmong  = 5 // of so many transactions one is aborted
	txnPadding    = 200
	storySent     = "sent"   // TXN PARTITION: another record of the transaction is about to be sent there
	storyAcked    = "acked"  // TXN PARTITION: another one was acknowledged
	storyCommit   = "commit" // TXN: about to be asked for
	storyDone     = "committed"
	storyAborted  = "aborted"
	storyGivenUp  = "gave-up"
	committedExit = 0
	givenUpExit   = 3
)

// txnValue is the beginning of record n of a transaction in a partition.
func txnValue(name string, txn, n int) string { return fmt.Sprintf("%s:%d:%d:", name, txn, n) }

// story is what a client tells of its transactions on standard output, each line before or after the fact, as its word says. What was told
// before a kill is told.
type story struct {
	mu sync.Mutex // guards standard output
}

func (s *story) tell(word string, txn int, more ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fmt.Sprintf("%s %d", word, txn)
	for _, m := range more {
		line += fmt.Sprintf(" %v", m)
	}
	fmt.Println(line)
}

// writeTransactions writes transactions under an id until SIGTERM, or until the client is in a state that is not for another try. Name is told
// in every value and is of this process alone.
//
// A partition has one record that is not acknowledged. With two, franz-go 1.22.3 may send only the second one again when the broker is back: it
// takes the answer for out of turn ("skipped" in its log) and waits for ever for the first, which the broker has.
func writeTransactions(args []string) error {
	flags := flag.NewFlagSet(writeCommand, flag.ContinueOnError)
	addr := flags.String("addr", "", "broker")
	topic := flags.String("topic", "", "topic")
	id := flags.String("id", "", "transactional id")
	name := flags.String("name", "", "of this process")
	seed := flags.Uint64("of", 0, "seed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := kgo.NewClient(append(quick(*addr),
		kgo.TransactionalID(*id), kgo.TransactionTimeout(txnTimeout), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.ProduceRequestTimeout(time.Second))...)
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	w := &txnWriter{c: c, topic: *topic, name: *name, rng: rand.New(rand.NewPCG(*seed, 0))}
	for txn := 0; ; txn++ {
		select {
		case <-stop:
			os.Exit(committedExit)
		case <-time.After(time.Duration(w.rng.Int64N(int64(txnPause)))):
		}
		if err := w.transaction(txn); err != nil {
			w.tell(storyGivenUp, txn, err)
			os.Exit(givenUpExit)
		}
	}
}

type txnWriter struct {
	story
	c     *kgo.Client
	topic string
	name  string
	rng   *rand.Rand
}

// transaction writes one and ends it. An error says that its end is not known.
func (w *txnWriter) transaction(txn int) error {
	ctx, cancel := context.WithTimeout(context.Background(), txnPatience)
	defer cancel()
	if err := w.c.BeginTransaction(); err != nil {
		return err
	}
	var next [partitions]int
	failed := kgo.AbortingFirstErrPromise(w.c)
	for range 1 + w.rng.IntN(txnRecords) {
		p := w.rng.Int32N(partitions)
		if next[p] > 0 { // see writeTransactions
			if err := w.c.Flush(ctx); err != nil {
				return err
			}
		}
		w.tell(storySent, txn, p)
		from := w.rng.IntN(len(padding) - txnPadding)
		value := append([]byte(txnValue(w.name, txn, next[p])), padding[from:from+w.rng.IntN(txnPadding)]...)
		next[p]++
		done := failed.Promise()
		w.c.Produce(ctx, &kgo.Record{Topic: w.topic, Partition: p, Value: value}, func(r *kgo.Record, err error) {
			if err == nil {
				w.tell(storyAcked, txn, p)
			}
			done(r, err)
		})
		if w.rng.IntN(3) == 0 {
			time.Sleep(time.Duration(w.rng.Int64N(int64(txnPause))))
		}
	}
	commit := w.rng.IntN(commitsAmong) > 0 && failed.Err() == nil
	if !commit {
		if err := w.c.AbortBufferedRecords(ctx); err != nil {
			return err
		}
		if err := w.c.EndTransaction(ctx, kgo.TryAbort); err != nil {
			return err
		}
		w.tell(storyAborted, txn)
		return nil
	}
	w.tell(storyCommit, txn)
	if err := w.c.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return err
	}
	w.tell(storyDone, txn)
	return nil
}

// quick are the options of clients that try again soon.
func quick(addr string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(addr),
		kgo.MetadataMinAge(20 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.RequestTimeoutOverhead(time.Second), // requests to a broker that is stopped are given up, and repeated
		kgo.AlwaysRetryEOF(),                    // a broker that is killed right after it accepted does not ask for SASL
	}
}
