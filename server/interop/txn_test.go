//go:build interop

package interop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	txnPartitions     = 3
	txnKillWithin     = 4 * time.Millisecond // of the commit's beginning
	txnKillsPerRound  = 4                    // of -kills
	copiedRecords     = 3000
	copiersAtATime    = 2
	pauseBetweenKills = 700 * time.Millisecond
)

// transactional is a client that is quick to try again.
func transactional(t *testing.T, addr, id string, opts ...kgo.Opt) *kgo.Client {
	return newClient(t, addr, append([]kgo.Opt{kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond })}, opts...)...)
}

// writeInAll begins a transaction and writes a value to every partition.
func writeInAll(ctx context.Context, c *kgo.Client, topic, value string) error {
	if err := c.BeginTransaction(); err != nil {
		return err
	}
	var rs []*kgo.Record
	for p := range int32(txnPartitions) {
		rs = append(rs, &kgo.Record{Topic: topic, Partition: p, Value: []byte(value)})
	}
	return c.ProduceSync(ctx, rs...).FirstErr()
}

// readCommitted reads what read_committed consumers see, and the markers, without which the end of a partition would never come.
func readCommitted(t *testing.T, addr, topic string) map[int32][]*kgo.Record {
	t.Helper()
	return readAllWith(t, addr, topic, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
}

// counts says in how many records each value is; markers are none.
func counts(got map[int32][]*kgo.Record) map[string]int {
	n := map[string]int{}
	for _, rs := range got {
		for _, r := range rs {
			if !r.Attrs.IsControl() {
				n[string(r.Value)]++
			}
		}
	}
	return n
}

// stable wants the last stable offset of every partition at its end.
func stable(t *testing.T, addr, topic string) {
	t.Helper()
	adm := kadm.NewClient(newClient(t, addr))
	committed, err := adm.ListCommittedOffsets(newContext(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	ends, err := adm.ListEndOffsets(newContext(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(e kadm.ListedOffset) {
		if c, _ := committed.Lookup(topic, e.Partition); c.Offset != e.Offset {
			t.Errorf("partition %d: last stable offset %d, end %d", e.Partition, c.Offset, e.Offset)
		}
	})
}

// TestTransactionsKilled: kill -9 right after a commit or an abort was asked for, again and again. No transaction is ever torn or left open, none that was
// acknowledged is lost, none that was aborted is seen (regression 56).
func TestTransactionsKilled(t *testing.T) {
	if *bootstrap != "" {
		t.Skip("a broker that was not started here is not killed")
	}
	for _, durability := range []string{"group-commit", "page-cache"} {
		cell(t, "franz-go", "transactions killed under "+durability, func(t *testing.T) {
			addr, process := startBroker(t, "--durability", durability)
			topic := newTopic(t, addr, txnPartitions)
			rounds := *kills * txnKillsPerRound
			ended := make([]error, rounds)
			for round := range rounds {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				c := transactional(t, addr, "killed")
				if err := writeInAll(ctx, c, topic, strconv.Itoa(round)); err != nil {
					t.Fatalf("round %d: %v\n%s", round, err, process.Stderr())
				}
				done := make(chan error)
				stop, giveUp := context.WithCancel(ctx)
				go func() { done <- c.EndTransaction(stop, kgo.TransactionEndTry(round%4 != 3)) }()
				time.Sleep(rand.N(txnKillWithin)) // what is killed when is a matter of chance
				if err := process.Restart(true); err != nil {
					t.Fatal(err)
				}
				if round%2 == 0 {
					giveUp() // and the next client finds it as it is
				}
				ended[round] = <-done
				giveUp()
				c.Close()
				cancel()
			}
			c := transactional(t, addr, "killed")
			if err := writeInAll(newContext(t), c, topic, "last"); err != nil {
				t.Fatal(err)
			}
			if err := c.EndTransaction(newContext(t), kgo.TryCommit); err != nil {
				t.Fatal(err)
			}
			stable(t, addr, topic)
			seen := counts(readCommitted(t, addr, topic))
			acknowledged := 0
			for round, err := range ended {
				n, commit := seen[strconv.Itoa(round)], round%4 != 3
				switch {
				case n != 0 && n != txnPartitions:
					t.Errorf("transaction %d is torn: in %d of %d partitions", round, n, txnPartitions)
				case n != 0 && !commit:
					t.Errorf("transaction %d was aborted and is seen", round)
				case n == 0 && commit && err == nil:
					t.Errorf("transaction %d was committed and is lost", round)
				}
				if err == nil {
					acknowledged++
				}
			}
			if seen["last"] != txnPartitions {
				t.Errorf("the last one is in %d partitions", seen["last"])
			}
			t.Logf("%d kills, %d transactions acknowledged", rounds, acknowledged)
		})
	}
}

// copier copies a topic to another exactly once until ctx ends.
func copier(ctx context.Context, addr, id, from, to string) error {
	s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(addr), kgo.TransactionalID(id), kgo.ConsumerGroup(from), kgo.ConsumeTopics(from),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.ProducerLinger(0), kgo.SessionTimeout(6*time.Second), kgo.RebalanceTimeout(6*time.Second), kgo.TransactionTimeout(6*time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
	if err != nil {
		return err
	}
	defer s.Close()
	for ctx.Err() == nil {
		fetches := s.PollRecords(ctx, 50)
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := s.Begin(); err != nil {
			return err
		}
		e := kgo.AbortingFirstErrPromise(s.Client())
		fetches.EachRecord(func(r *kgo.Record) { s.Produce(ctx, &kgo.Record{Topic: to, Value: r.Value}, e.Promise()) })
		if _, err := s.End(ctx, e.Err() == nil); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// TestFranzExactlyOnce: two consumers of a group read, write and commit offsets in transactions (KIP-447) while the broker is killed; every record of
// the input is in the output once.
func TestFranzExactlyOnce(t *testing.T) {
	if *bootstrap != "" {
		t.Skip("a broker that was not started here is not killed")
	}
	cell(t, "franz-go", "read-process-write while killed", func(t *testing.T) {
		addr, process := startBroker(t, "--set", "group.initial.rebalance.delay.ms=0")
		in, out := newTopic(t, addr, txnPartitions), newTopic(t, addr, txnPartitions)
		c := newClient(t, addr)
		for i := range copiedRecords {
			c.Produce(newContext(t), &kgo.Record{Topic: in, Value: []byte(strconv.Itoa(i))}, nil)
		}
		if err := c.Flush(newContext(t)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		var copiers sync.WaitGroup
		for i := range copiersAtATime {
			copiers.Go(func() {
				for life := 0; ctx.Err() == nil; life++ { // one that got a fatal error begins anew
					if err := copier(ctx, addr, fmt.Sprint("copier-", i), in, out); err != nil {
						t.Logf("copier %d: %v", i, err)
					}
				}
			})
		}
		for range *kills {
			time.Sleep(pauseBetweenKills)
			if err := process.Restart(true); err != nil {
				t.Fatal(err)
			}
		}
		var seen map[string]int
		for ctx.Err() == nil && len(seen) < copiedRecords {
			seen = counts(readCommitted(t, addr, out))
		}
		cancel()
		copiers.Wait()
		seen = counts(readCommitted(t, addr, out))
		for i := range copiedRecords {
			if n := seen[strconv.Itoa(i)]; n != 1 {
				t.Errorf("record %d is there %d times", i, n)
			}
		}
		if t.Failed() {
			t.Log(process.Stderr())
		}
	})
}

// TestJavaTransactions: Apache's tools list, describe, find and abort transactions, copy in them, and decode their log.
func TestJavaTransactions(t *testing.T) {
	if *bootstrap != "" {
		t.Skip("its files are read")
	}
	const class = "org.apache.kafka.tools.TransactionsCommand"
	dir := filepath.Join(t.TempDir(), "data")
	addr, process := startBroker(t, "--data-dir", dir, "--set", "transaction.state.log.num.partitions=1", "--set", "transaction.max.timeout.ms=3600000")
	topic := newTopic(t, addr, txnPartitions)
	c := transactional(t, addr, "tx-java", kgo.TransactionTimeout(time.Hour))
	if err := writeInAll(newContext(t), c, topic, "open"); err != nil {
		t.Fatal(err)
	}
	var producer string
	cell(t, "TransactionsCommand", "list", func(t *testing.T) {
		out := tool(t, "", class, "--bootstrap-server", addr, "list")
		m := regexp.MustCompile(`(?m)^tx-java\s+\S+\s+(\d+)\s+Ongoing\s*$`).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("%s", out)
		}
		producer = m[1]
	})
	cell(t, "TransactionsCommand", "describe", func(t *testing.T) {
		out := tool(t, "", class, "--bootstrap-server", addr, "describe", "--transactional-id", "tx-java")
		wantMatch(t, "transaction", out, `(?m)^\d+\s+tx-java\s+`+producer+`\s+\d+\s+Ongoing\s+3600000\s+.*`+topic+`-0`)
	})
	cell(t, "TransactionsCommand", "describe-producers", func(t *testing.T) {
		out := tool(t, "", class, "--bootstrap-server", addr, "describe-producers", "--topic", topic, "--partition", "0")
		wantMatch(t, "producer", out, `(?m)^`+producer+`\s+\d+\s+-1\s+0\s+\d+\s+0\s*$`)
	})
	cell(t, "TransactionsCommand", "find-hanging", func(t *testing.T) {
		out := tool(t, "", class, "--bootstrap-server", addr, "find-hanging", "--max-transaction-timeout", "0", "--topic", topic)
		if strings.Contains(out, producer) && strings.Contains(out, topic) {
			t.Errorf("an open transaction is no hanging one:\n%s", out)
		}
	})
	cell(t, "TransactionsCommand", "abort", func(t *testing.T) {
		for p := range txnPartitions {
			tool(t, "", class, "--bootstrap-server", addr, "abort", "--topic", topic, "--partition", strconv.Itoa(p), "--start-offset", "0")
		}
		stable(t, addr, topic)
		if seen := counts(readCommitted(t, addr, topic)); len(seen) != 0 {
			t.Errorf("aborted, and %v is seen", seen)
		}
	})
	copyByJava(t, addr)
	cell(t, "DumpLogSegments", "transaction log", func(t *testing.T) {
		if err := process.Restart(false); err != nil { // a file that is closed ends with its last batch
			t.Fatal(err)
		}
		out := tool(t, "", "kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", filepath.Join(dir, "__transaction_state-0", "00000000000000000000.log"))
		wantMatch(t, "record", out, `key: transaction_metadata::transactionalId=tx-java payload: producerId:`+producer+`,producerEpoch:\d+,state=Ongoing,partitions=\[`)
	})
}

// copyByJava copies a topic by Apache's TransactionalMessageCopier, which aborts now and then.
func copyByJava(t *testing.T, addr string) {
	t.Helper()
	cell(t, "TransactionalMessageCopier", "copy", func(t *testing.T) {
		in, out := newTopic(t, addr, 1), newTopic(t, addr, 1)
		w := newClient(t, addr)
		for i := range 100 {
			w.Produce(newContext(t), &kgo.Record{Topic: in, Value: []byte(strconv.Itoa(i))}, nil)
		}
		if err := w.Flush(newContext(t)); err != nil {
			t.Fatal(err)
		}
		said := tool(t, "", "org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", addr, "--input-topic", in, "--input-partition", "0",
			"--output-topic", out, "--max-messages", "100", "--consumer-group", "copy-"+in, "--transaction-size", "10", "--transactional-id", "copy-"+in,
			"--enable-random-aborts", "--group-mode")
		wantMatch(t, "what the tool says", said, `"ShutdownComplete"`)
		seen := counts(readCommitted(t, addr, out))
		for i := range 100 {
			if seen[strconv.Itoa(i)] != 1 {
				t.Errorf("record %d is there %d times", i, seen[strconv.Itoa(i)])
			}
		}
		stable(t, addr, out)
	})
}
