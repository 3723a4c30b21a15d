package causal

import (
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"kaas/codec/parsley"
)

// topic is a topic id that sorts as its number.
func topic(n byte) uuid.UUID { return uuid.UUID{15: n} }

// ch is a channel of topic(t).
func ch(t byte, partition int32) parsley.Channel {
	return parsley.Channel{Topic: topic(t), Partition: partition}
}

// Senders: me is the node under test.
var (
	me    = uuid.UUID{0: 1}
	other = uuid.UUID{0: 2}
	third = uuid.UUID{0: 3}
)

// off and seq are claims.
func off(c parsley.Channel, n int64) parsley.OffsetClaim { return parsley.OffsetClaim{Key: c, N: n} }

func seq(c parsley.Channel, s uuid.UUID, n int64) parsley.SequenceClaim {
	return parsley.SequenceClaim{Key: parsley.SequenceKey{Channel: c, Sender: s}, N: n}
}

// clock makes a clock of off and seq claims.
func clock(claims ...any) (c parsley.Clock) {
	for _, e := range claims {
		switch e := e.(type) {
		case parsley.OffsetClaim:
			c.RaiseOffset(e.Key, e.N)
		case parsley.SequenceClaim:
			c.RaiseSequence(e.Key, e.N)
		default:
			panic(fmt.Sprintf("BUG: claim %T", e))
		}
	}
	return c
}

// rec is an untagged record with key k and value v.
func rec(offset int64, claims ...any) *parsley.Held {
	return &parsley.Held{Offset: offset, Timestamp: 1000 + offset, Sequence: -1, Clock: clock(claims...),
		Key: []byte("k"), Value: fmt.Appendf(nil, "v%d", offset)}
}

// tagged is rec, sent by s as its number q.
func tagged(offset int64, s uuid.UUID, q int64, claims ...any) *parsley.Held {
	r := rec(offset, claims...)
	r.Tagged, r.Sender, r.Sequence = true, s, q
	return r
}

// all is what m has.
func (m *Memory) all() map[string][]byte {
	list := map[string][]byte{}
	for k, v := range m.values {
		list[k] = v.bytes
	}
	return list
}

// rig is a node with its store, and the facts of the world around.
type rig struct {
	t     testing.TB
	cfg   Config
	store *Memory
	facts Facts
	*Node
}

// newRig starts a node that consumes the given channels and has topics 30 and 31 as sinks.
func newRig(t testing.TB, change func(*rig), consumed ...parsley.Channel) *rig {
	t.Helper()
	r := &rig{t: t, store: &Memory{}, cfg: Config{Sender: me, Consumed: consumed, Sinks: []uuid.UUID{topic(30), topic(31)}}}
	r.facts = Facts{Ends: []End{{ch(30, 0), 0}, {ch(30, 1), 0}, {ch(31, 0), 0}}}
	if change != nil {
		change(r)
	}
	r.start()
	return r
}

// start begins a life from what is in the store.
func (r *rig) start() {
	r.t.Helper()
	if err := r.tryStart(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) tryStart() (err error) {
	if r.Node, err = Open(r.cfg, r.store); err != nil {
		return err
	}
	if err = r.Node.Start(r.facts); err != nil {
		return err
	}
	return r.Node.Commit(nil)
}

// ends sets the end of a sink channel.
func (r *rig) ends(c parsley.Channel, offset int64) {
	for i := range r.facts.Ends {
		if r.facts.Ends[i].Channel == c {
			r.facts.Ends[i].Offset = offset
			return
		}
	}
	r.facts.Ends = append(r.facts.Ends, End{c, offset})
}

// feed receives a record, commits, and checks what was delivered.
func (r *rig) feed(c parsley.Channel, h *parsley.Held, want ...string) {
	r.t.Helper()
	out, err := r.Receive(c, h, nil)
	r.check(out, err, want)
}

// pass is feed for a position.
func (r *rig) pass(c parsley.Channel, position int64, want ...string) {
	r.t.Helper()
	out, err := r.PositionAdvance(c, position, nil)
	r.check(out, err, want)
}

func (r *rig) check(out []Delivery, err error, want []string) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	if got := names(out); !slices.Equal(got, want) {
		r.t.Fatalf("delivered %v, want %v", got, want)
	}
	if err := r.Commit(nil); err != nil {
		r.t.Fatal(err)
	}
}

// names are deliveries as "topic:partition@offset", where the topic is its number.
func names(out []Delivery) (list []string) {
	for _, d := range out {
		list = append(list, fmt.Sprintf("%d:%d@%d", d.Channel.Topic[15], d.Channel.Partition, d.Offset))
	}
	return list
}

// send stamps a record, commits, and checks the clock and the sequence.
func (r *rig) send(c parsley.Channel, wantSeq int64, claims ...any) {
	r.t.Helper()
	var s parsley.Stamp
	if err := r.Stamp(c, &s); err != nil {
		r.t.Fatal(err)
	}
	want := clock(claims...)
	if !s.Clock.Equal(&want) {
		r.t.Errorf("stamp claims\n%v\nwant\n%v", show(&s.Clock), show(&want))
	}
	if s.Sequence != wantSeq || s.Sender != r.cfg.Sender || !s.Tagged || !s.HasClock {
		r.t.Errorf("stamp %+v, want sequence %d", s, wantSeq)
	}
	if err := r.Commit(nil); err != nil {
		r.t.Fatal(err)
	}
}

func show(c *parsley.Clock) (s string) {
	for _, e := range c.Offsets() {
		s += fmt.Sprintf("{%d:%d @%d}", e.Key.Topic[15], e.Key.Partition, e.N)
	}
	for _, e := range c.Sequences() {
		s += fmt.Sprintf("{%d:%d from %d #%d}", e.Key.Topic[15], e.Key.Partition, e.Key.Sender[0], e.N)
	}
	return s
}

// stored is the whole store, values in hex.
func (m *Memory) stored() map[string]string {
	all := map[string]string{}
	for k, v := range m.all() {
		all[k] = hex.EncodeToString(v)
	}
	return all
}

func (r *rig) frontier(c parsley.Channel) int64 {
	r.t.Helper()
	s, ok := r.Channel(c)
	if !ok {
		r.t.Fatalf("%v is not consumed", c)
	}
	return s.Frontier
}
