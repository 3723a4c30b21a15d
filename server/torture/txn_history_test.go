//go:build torture

package torture

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	checker "kaas/server/history"
)

// txnHistory is what clients tell of their transactions, and what readers saw.
type txnHistory struct {
	mu      sync.Mutex // guards all
	txns    []*checker.Txn
	index   map[string]int         // by name
	commits map[string]int         // by transactional id, those that were answered
	last    map[string]string      // by process, the last line of its story
	seen    map[view][]*kgo.Record // in order; clients may be heard of later
	faults  []checker.Fault
}

// view is one partition to one read_committed reader.
type view struct {
	reader    string
	partition int32
}

func newTxnHistory() *txnHistory {
	return &txnHistory{index: map[string]int{}, commits: map[string]int{}, last: map[string]string{}, seen: map[view][]*kgo.Record{}}
}

func (h *txnHistory) fail(kind checker.Kind, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, checker.Fault{Kind: kind, Text: fmt.Sprintf(format, args...)})
}

// hear takes a line of a client's story.
func (h *txnHistory) hear(id, name, line string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last[name] = fmt.Sprintf("%s %s", time.Now().Format(time.TimeOnly), line)
	part := strings.Fields(line)
	if len(part) < 2 {
		return fmt.Errorf("a client says %q", line)
	}
	key := name + ":" + part[1]
	i, ok := h.index[key]
	if !ok {
		i = len(h.txns)
		h.index[key] = i
		h.txns = append(h.txns, &checker.Txn{Name: key, Sent: map[int32]int{}, Acked: map[int32]int{}})
	}
	t := h.txns[i]
	switch part[0] {
	case storySent, storyAcked:
		p, err := strconv.Atoi(part[2])
		if err != nil {
			return err
		}
		if part[0] == storySent {
			t.Sent[int32(p)]++
		} else {
			t.Acked[int32(p)]++
		}
	case storyCommit:
		t.AskedCommit = true
	case storyDone:
		t.Told = checker.Committed
		h.commits[id]++
	case storyAborted:
		t.Told = checker.Aborted
	case storyGivenUp:
	default:
		return fmt.Errorf("a client says %q", line)
	}
	return nil
}

// record makes of what was read what the judge knows.
func (h *txnHistory) record(r *kgo.Record) checker.Record {
	if r.Attrs.IsControl() {
		return checker.Record{Producer: r.ProducerID, Marker: true, Commit: len(r.Key) == 4 && r.Key[3] == 1, Txn: -1}
	}
	out := checker.Record{Producer: r.ProducerID, Txn: -1}
	part := strings.SplitN(string(r.Value), ":", 4)
	if len(part) < 4 {
		return out
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if i, ok := h.index[part[0]+":"+part[1]]; ok {
		if n, err := strconv.Atoi(part[2]); err == nil {
			out.Txn, out.N = i, n
		}
	}
	return out
}

// progress is how many commits of an id were answered.
func (h *txnHistory) progress(id string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commits[id]
}

// lengths are how many records of each partition a reader has seen.
func (h *txnHistory) lengths(reader string) (n [partitions]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range n {
		n[p] = len(h.seen[view{reader, int32(p)}])
	}
	return n
}

// newCommittedReader reads a topic from its start, as read_committed; an offset that is not there is an error.
func newCommittedReader(t *testing.T, addr, topic string) *kgo.Client {
	from := map[int32]kgo.Offset{}
	for p := range int32(partitions) {
		from[p] = kgo.NewOffset().AtStart()
	}
	return newClient(t, addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
}

// tail notes what a reader sees until ctx ends.
func (h *txnHistory) tail(ctx context.Context, c *kgo.Client, reader string) {
	for ctx.Err() == nil {
		fs := c.PollFetches(ctx)
		fs.EachError(func(_ string, p int32, err error) {
			if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				h.fail(unreadable, "partition %d: %s: %v", p, reader, err)
			}
		})
		fs.EachRecord(func(r *kgo.Record) {
			h.mu.Lock()
			defer h.mu.Unlock()
			v := view{reader, r.Partition}
			h.seen[v] = append(h.seen[v], r)
		})
	}
}

// readLog reads all partitions of a topic with their markers, to their ends.
func (h *txnHistory) readLog(ctx context.Context, t *testing.T, addr, topic string, level kgo.IsolationLevel) (map[int32][]checker.Record, error) {
	ends, err := kadm.NewClient(newClient(t, addr)).ListEndOffsets(ctx, topic)
	if err = errors.Join(err, ends.Error()); err != nil {
		return nil, err
	}
	from, left := map[int32]kgo.Offset{}, map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		from[o.Partition] = kgo.NewOffset().AtStart()
		if o.Offset > 0 {
			left[o.Partition] = o.Offset - 1
		}
	})
	c := newClient(t, addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.FetchIsolationLevel(level), kgo.KeepControlRecords())
	defer c.Close()
	logs := map[int32][]checker.Record{}
	for len(left) > 0 {
		fs := c.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("partitions %v were not read to their ends: %w", left, ctx.Err())
		}
		fs.EachRecord(func(r *kgo.Record) {
			logs[r.Partition] = append(logs[r.Partition], h.record(r))
			if last, ok := left[r.Partition]; ok && r.Offset >= last {
				delete(left, r.Partition)
			}
		})
	}
	return logs, nil
}

// records is record for many.
func (h *txnHistory) records(rs []*kgo.Record) (out []checker.Record) {
	for _, r := range rs {
		out = append(out, h.record(r))
	}
	return out
}

// data are the records that are no markers.
func data(log []checker.Record) (out []checker.Record) {
	for _, r := range log {
		if !r.Marker {
			out = append(out, r)
		}
	}
	return out
}
