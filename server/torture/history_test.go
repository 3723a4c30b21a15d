package torture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The kinds of faults.
const (
	lost        = "lost"        // acknowledged, never read
	duplicated  = "duplicated"  // one value at two offsets, or one offset read twice by a reader
	reordered   = "reordered"   // a value after one that its producer sent to the partition later
	invented    = "invented"    // read, never sent
	unseen      = "unseen"      // read by one reader, and passed over by another
	changed     = "changed"     // two readers read different values at one offset
	elsewhere   = "elsewhere"   // acknowledged at one offset, read at another
	refused     = "refused"     // given up by a producer that retries for ever what can be retried
	misanswered = "misanswered" // an answer that does not fit its request
	unreadable  = "unreadable"  // an error of a reader that is not for another try
)

type fault struct{ kind, text string }

// unknownOffset is the offset of what was acknowledged as a repeat, and notAcked that of what has not been acknowledged.
const (
	unknownOffset = -1
	notAcked      = -2
)

// history is what producers and readers of one topic saw. A producer sends the values 0, 1, 2… to each partition.
type history struct {
	mu       sync.Mutex              // guards all
	sent     map[stream][]int64      // the offset at which each was acknowledged
	read     map[int32][]observation // by partition
	complete map[string]bool         // readers that read everything, up to the end
	acks     map[int32]int           // acknowledgements by partition
	ends     map[int32]int64         // by partition, the offset after the last acknowledged
	faults   []fault
}

// stream is what one producer sends to one partition.
type stream struct {
	partition int32
	producer  string
}

// observation is a value that a reader got.
type observation struct {
	reader string
	offset int64
	value  string
}

func newHistory() *history {
	return &history{sent: map[stream][]int64{}, read: map[int32][]observation{}, complete: map[string]bool{}, acks: map[int32]int{}, ends: map[int32]int64{}}
}

// valueOf is the beginning of value n of a producer; what follows the second colon is free.
func valueOf(producer string, n int) string { return fmt.Sprintf("%s:%d:", producer, n) }

// send notes that the next value is about to be sent and returns its number.
func (h *history) send(p int32, producer string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := stream{p, producer}
	h.sent[s] = append(h.sent[s], notAcked)
	return len(h.sent[s]) - 1
}

// ack notes the acknowledgement of value n, or with err that its producer gave it up.
func (h *history) ack(p int32, producer string, n int, offset int64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.faults = append(h.faults, fault{refused, fmt.Sprintf("partition %d: %s %v", p, valueOf(producer, n), err)})
		return
	}
	h.sent[stream{p, producer}][n] = max(offset, unknownOffset)
	h.acks[p]++
	h.ends[p] = max(h.ends[p], offset+1)
}

// acked is the number of acknowledgements in a partition so far, and the offset after the last that was acknowledged.
func (h *history) acked(p int32) (count int, end int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.acks[p], h.ends[p]
}

// see notes what a reader got, in the order in which it got it.
func (h *history) see(reader string, p int32, offset int64, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.read[p] = append(h.read[p], observation{reader, offset, value})
}

// fail notes what is a fault at sight.
func (h *history) fail(kind, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fault{kind, fmt.Sprintf(format, args...)})
}

// finished notes that a reader has read every partition from its start to its end, after all producers were done.
func (h *history) finished(reader string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.complete[reader] = true
}

// judge returns every fault.
func (h *history) judge() []fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := &judgement{history: h, faults: slices.Clone(h.faults)}
	partitions := map[int32]bool{}
	for s := range h.sent {
		partitions[s.partition] = true
	}
	for p := range h.read {
		partitions[p] = true
	}
	for _, p := range slices.Sorted(maps.Keys(partitions)) {
		log := j.readers(p)
		j.promises(p, j.order(p, log))
	}
	return j.faults
}

type judgement struct {
	*history
	faults []fault
}

func (j *judgement) add(kind string, p int32, format string, args ...any) {
	j.faults = append(j.faults, fault{kind, fmt.Sprintf("partition %d: ", p) + fmt.Sprintf(format, args...)})
}

// readers compares the readers of a partition and returns the log as they saw it, by offset.
func (j *judgement) readers(p int32) (log map[int64]string) {
	log = map[int64]string{}
	got := map[string]map[int64]bool{}
	ends := map[string]int64{}
	for r := range j.complete {
		got[r] = map[int64]bool{}
	}
	for _, o := range j.read[p] {
		if got[o.reader] == nil {
			got[o.reader] = map[int64]bool{}
		}
		if o.offset < ends[o.reader] {
			j.add(duplicated, p, "%s read offset %d after offset %d", o.reader, o.offset, ends[o.reader]-1)
		}
		got[o.reader][o.offset] = true
		ends[o.reader] = max(ends[o.reader], o.offset+1)
		if had, ok := log[o.offset]; ok && had != o.value {
			j.add(changed, p, "%s read %.40q at offset %d, another %.40q", o.reader, o.value, o.offset, had)
			continue
		}
		log[o.offset] = o.value
	}
	for _, r := range slices.Sorted(maps.Keys(got)) {
		for _, offset := range slices.Sorted(maps.Keys(log)) {
			if !got[r][offset] && (offset < ends[r] || j.complete[r]) {
				j.add(unseen, p, "%s did not read offset %d, %.40q", r, offset, log[offset])
			}
		}
	}
	return log
}

// order looks at the values of a partition in the order of the log, and returns the first offset of each.
func (j *judgement) order(p int32, log map[int64]string) (at map[string]int64) {
	at = map[string]int64{}
	last := map[string]int{}
	for _, offset := range slices.Sorted(maps.Keys(log)) {
		producer, n, ok := parse(log[offset])
		if list := j.sent[stream{p, producer}]; !ok || n < 0 || n >= len(list) {
			j.add(invented, p, "%.40q at offset %d", log[offset], offset)
			continue
		}
		value := valueOf(producer, n)
		if first, ok := at[value]; ok {
			j.add(duplicated, p, "%s at offsets %d and %d", value, first, offset)
			continue
		}
		at[value] = offset
		if before, ok := last[producer]; ok && n < before {
			j.add(reordered, p, "%s at offset %d, after number %d", value, offset, before)
		}
		last[producer] = max(last[producer], n)
	}
	return at
}

// parse takes a value apart.
func parse(value string) (producer string, n int, ok bool) {
	part := strings.SplitN(value, ":", 3)
	if len(part) != 3 {
		return "", 0, false
	}
	_, err := fmt.Sscanf(part[1], "%d", &n)
	return part[0], n, err == nil && valueOf(part[0], n) == part[0]+":"+part[1]+":"
}

// promises compares what was acknowledged with what was read.
func (j *judgement) promises(p int32, at map[string]int64) {
	streams := slices.SortedFunc(maps.Keys(j.sent), func(a, b stream) int { return cmp.Compare(a.producer, b.producer) })
	for _, s := range streams {
		if s.partition != p {
			continue
		}
		for n, offset := range j.sent[s] {
			got, ok := at[valueOf(s.producer, n)]
			switch {
			case offset == notAcked:
			case !ok:
				j.add(lost, p, "%s was acknowledged at offset %d", valueOf(s.producer, n), offset)
			case offset != unknownOffset && got != offset:
				j.add(elsewhere, p, "%s was acknowledged at offset %d and read at %d", valueOf(s.producer, n), offset, got)
			}
		}
	}
}

// A torture proves nothing if its judge sees nothing.
func TestJudge(t *testing.T) {
	type acks []int64 // of producer "a" in partition 0
	for _, c := range []struct {
		name  string
		acked acks
		tail  string // what a reader saw that was not there to the end: values at the offsets 0, 1, 2…
		last  string // and one that was; "-" is an offset without a value
		want  string // the kinds of faults
	}{
		{"all there", acks{0, 1}, "a:0: a:1:", "a:0: a:1:", ""},
		{"one reader is behind", acks{0, 1}, "a:0:", "a:0: a:1:", ""},
		{"read and not acknowledged", acks{0, notAcked}, "a:0: a:1:", "a:0: a:1:", ""},
		{"neither read nor acknowledged", acks{0, notAcked}, "a:0:", "a:0:", ""},
		{"acknowledged without an offset", acks{0, unknownOffset}, "", "a:0: a:1:", ""},
		{"padded", acks{0}, "a:0:xx", "a:0:xx", ""},
		{"lost at the end", acks{0, 1}, "", "a:0:", "lost"},
		{"lost in the middle", acks{0, 1, 1}, "", "a:0: a:2:", "lost"},
		{"all lost", acks{0}, "", "", "lost"},
		{"twice", acks{0}, "", "a:0: a:0:", "duplicated"},
		{"out of order", acks{1, 0}, "", "a:1: a:0:", "reordered"},
		{"elsewhere", acks{1}, "", "a:0:", "elsewhere"},
		{"never sent", acks{0}, "", "a:0: a:1:", "invented"},
		{"by nobody", acks{0}, "", "a:0: b:0:", "invented"},
		{"no value of ours", acks{0}, "", "a:0: x", "invented"},
		{"odd number", acks{0, 1}, "", "a:0: a:01:", "invented lost"},
		{"passed over", acks{0, 1, 2}, "a:0: - a:2:", "a:0: a:1: a:2:", "unseen"},
		{"passed over at the end", acks{0, notAcked}, "a:0: a:1:", "a:0:", "unseen"},
		{"seen, then gone for all", acks{0, notAcked}, "a:0: a:1:", "", "unseen unseen"},
		{"changed", acks{0, notAcked, notAcked}, "a:0: a:1:", "a:0: a:2:", "changed"},
		{"same number, other bytes", acks{0}, "a:0:x", "a:0:y", "changed"},
	} {
		h := newHistory()
		for _, offset := range c.acked {
			if n := h.send(0, "a"); offset != notAcked {
				h.ack(0, "a", n, offset, nil)
			}
		}
		for reader, log := range map[string]string{"tail": c.tail, "last": c.last} {
			for i, v := range strings.Fields(log) {
				if v != "-" {
					h.see(reader, 0, int64(i), v)
				}
			}
		}
		h.finished("last")
		if got := kinds(h.judge()); got != c.want {
			t.Errorf("%s: want %q, got %q", c.name, c.want, got)
		}
	}
}

// kinds of faults, in order.
func kinds(faults []fault) string {
	var out []string
	for _, f := range faults {
		out = append(out, f.kind)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// What the table above has no form for.
func TestJudgeMore(t *testing.T) {
	h := newHistory()
	for p := range int32(2) { // the same numbers in two partitions, of two producers
		for _, producer := range []string{"a", "b"} {
			h.ack(p, producer, h.send(p, producer), unknownOffset, nil)
		}
	}
	h.ack(1, "b", h.send(1, "b"), 0, fmt.Errorf("out of order"))
	for p, log := range [][]string{{"a:0:", "b:0:"}, {"b:0:", "a:0:"}} {
		for i, v := range log {
			h.see("last", int32(p), int64(i), v)
		}
	}
	h.finished("last")
	if got := kinds(h.judge()); got != refused {
		t.Errorf("a value given up: %q", got)
	}
	h.ack(1, "a", h.send(1, "a"), 7, nil)
	if count, end := h.acked(1); count != 3 || end != 8 {
		t.Errorf("%d acknowledged, end %d; want 3 and 8", count, end)
	}
	h.see("last", 1, 7, "a:1:")
	h.see("last", 1, 1, "a:0:")
	h.fail(lost, "at sight")
	if got := kinds(h.judge()); got != "duplicated lost refused" {
		t.Errorf("an offset read twice, and a fault at sight: %q", got)
	}
}
