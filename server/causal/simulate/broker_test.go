package simulate

import (
	"fmt"

	"github.com/google/uuid"

	"kaas/codec/parsley"
)

// kind of what lies at an offset.
type kind uint8

const (
	business kind = iota // a committed record
	open                 // a record of a transaction that has not ended
	aborted
	removed // a record that compaction took; its record is kept for those who hold a copy
	marker
)

type slot struct {
	kind   kind
	record *record // nil: a marker
}

// record is a record as it lies in a log, and what the oracle knows of it.
type record struct {
	id         int
	log        *partition
	offset     int64
	timestamp  int64
	key, value []byte
	headers    []parsley.Header
	sender     uuid.UUID // of a stamped record
	sequence   int64     // −1: not tagged
	by         string
	past       bitset // ids of all records that happened before it
}

func (r *record) String() string { return fmt.Sprintf("%s@%d by %s", r.log.name, r.offset, r.by) }

// partition is one log.
type partition struct {
	id        parsley.Channel
	name      string // for people: topic, generation, partition
	slots     []slot
	start     int64 // log start
	stable    int64 // last stable offset, as far as stableEnd has looked
	destroyed bool

	compacted   bool // by the topic's settings
	uncommitted bool // broken: readers get what was aborted
}

func (p *partition) end() int64 { return int64(len(p.slots)) }

// stableEnd is the last stable offset: the first one of an open transaction, or the end.
func (p *partition) stableEnd() int64 {
	for p.stable < p.end() && p.slots[p.stable].kind != open {
		p.stable++
	}
	return p.stable
}

// next is the offset of the first record at or above from that a reader of committed records gets, or the last stable offset.
func (p *partition) next(from int64) (offset int64, found bool) {
	offset = max(from, p.start)
	for end := p.stableEnd(); offset < end; offset++ {
		if k := p.slots[offset].kind; k == business || k == aborted && p.uncommitted {
			return offset, true
		}
	}
	return offset, false
}

// topic is a name, and what exists under it now.
type topic struct {
	name       string
	partitions int32
	id         uuid.UUID
	generation int
	deleted    bool // and not created again
}

// broker is the cluster.
type broker struct {
	topics map[string]*topic
	names  []string // of topics, as they were made
	logs   map[parsley.Channel]*partition
	all    []*partition
	issued map[parsley.SequenceKey]int64 // highest sequence that a node was seen to stamp
	total  int                           // records
	oracle *oracle
}

func newBroker() broker {
	return broker{topics: map[string]*topic{}, logs: map[parsley.Channel]*partition{}, issued: map[parsley.SequenceKey]int64{}, oracle: &oracle{}}
}

// create makes a topic, or makes it again after a deletion: then it has another id.
func (b *broker) create(name string, partitions int32) {
	t := b.topics[name]
	if t == nil {
		t = &topic{name: name}
		b.topics[name] = t
		b.names = append(b.names, name)
	}
	t.partitions, t.deleted = partitions, false
	t.generation++
	// Names are hashed, so some ids have a top bit set and sort as negative numbers.
	t.id = uuid.NewMD5(uuid.Nil, fmt.Appendf(nil, "%s/%d", name, t.generation))
	t.id[0] ^= t.id[15] << 7
	t.id[8] ^= t.id[14] << 7
	for i := range partitions {
		p := &partition{id: parsley.Channel{Topic: t.id, Partition: i}, name: fmt.Sprintf("%s.%d:%d", name, t.generation, i)}
		b.logs[p.id] = p
		b.all = append(b.all, p)
	}
}

// delete destroys a topic with all that is in it.
func (b *broker) delete(name string) {
	t := b.topics[name]
	t.deleted = true
	for _, p := range b.of(t.id) {
		p.destroyed = true
	}
}

// of are the logs of a topic id, destroyed or not.
func (b *broker) of(id uuid.UUID) (list []*partition) {
	for i := int32(0); ; i++ {
		p := b.logs[parsley.Channel{Topic: id, Partition: i}]
		if p == nil {
			return list
		}
		list = append(list, p)
	}
}

// route is the log of a topic that a key belongs to.
func (b *broker) route(name string, key []byte) *partition {
	t := b.topics[name]
	return b.logs[parsley.Channel{Topic: t.id, Partition: parsley.PartitionOf(key, t.partitions)}]
}

// transaction is what one producer wrote and has neither committed nor aborted.
type transaction struct {
	records []*record
	touched []*partition
}

func (t *transaction) empty() bool { return len(t.records) == 0 }

// append puts r at the end of p; t is nil outside of a transaction.
func (b *broker) append(t *transaction, p *partition, r *record) {
	r.id, r.log, r.offset = b.total, p, p.end()
	b.total++
	k := business
	if t != nil {
		k = open
		t.records = append(t.records, r)
		known := false
		for _, q := range t.touched {
			known = known || q == p
		}
		if !known {
			t.touched = append(t.touched, p)
		}
	}
	p.slots = append(p.slots, slot{k, r})
}

// finish ends t: its records are committed or aborted, and every log that it wrote to gets a marker.
func (t *transaction) finish(commit bool) {
	for _, r := range t.records {
		if r.log.slots[r.offset].kind = aborted; commit {
			r.log.slots[r.offset].kind = business
		}
	}
	for _, p := range t.touched {
		if !p.destroyed {
			p.slots = append(p.slots, slot{kind: marker})
		}
	}
	*t = transaction{}
}
