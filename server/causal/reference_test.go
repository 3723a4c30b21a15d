package causal

import (
	"slices"

	"github.com/google/uuid"

	"kaas/codec/parsley"
)

// reference is the algorithm of the existing implementation, step by step as its description has it: passes over all
// channels, clocks built anew for every stamp, every write at once. What a node in parity mode does is compared with it.
type reference struct {
	sender   uuid.UUID
	consumed []parsley.Channel
	sinks    []uuid.UUID
	store    *Memory

	f, known, resume map[parsley.Channel]int64
	cc               map[parsley.Channel]*parsley.Clock
	ca               parsley.Clock
	queues           map[parsley.Channel][]parsley.Held
	head             map[parsley.Channel]int64
	sq, baseline     map[parsley.Channel]int64
	ds               map[parsley.SequenceKey]parsley.Mark
	own              map[parsley.Channel]int64
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (r *reference) put(k parsley.Key, v []byte) { r.store.Put(k.Append(nil), v) }

func (r *reference) at(m map[parsley.Channel]int64, c parsley.Channel, none int64) int64 {
	if v, ok := m[c]; ok {
		return v
	}
	return none
}

// newReference starts a life on a store; f has the ends of current and former sinks.
func newReference(sender uuid.UUID, consumed []parsley.Channel, sinks []uuid.UUID, store *Memory, f Facts) *reference {
	r := &reference{sender: sender, consumed: sortedUnique(consumed, parsley.Channel.Compare), sinks: sortedUnique(sinks, parsley.CompareUUIDs), store: store}
	for _, m := range []*map[parsley.Channel]int64{&r.f, &r.known, &r.resume, &r.head, &r.sq, &r.baseline, &r.own} {
		*m = map[parsley.Channel]int64{}
	}
	r.cc, r.queues, r.ds = map[parsley.Channel]*parsley.Clock{}, map[parsley.Channel][]parsley.Held{}, map[parsley.SequenceKey]parsley.Mark{}
	var old parsley.Scope
	recorded := r.restore(&old)
	former := slices.DeleteFunc(slices.Clone(old.Sinks), func(id uuid.UUID) bool { return slices.Contains(r.sinks, id) })
	wroteCA := false
	for _, e := range f.Ends {
		switch {
		case e.Offset == 0:
		case slices.Contains(r.sinks, e.Channel.Topic):
			r.own[e.Channel] = e.Offset - 1
		case slices.Contains(former, e.Channel.Topic):
			wroteCA = r.ca.RaiseOffset(e.Channel, e.Offset-1) || wroteCA
		}
	}
	if recorded {
		r.rescope(&old, wroteCA)
	}
	now := parsley.Scope{Channels: slices.Clone(r.consumed), Sinks: slices.Clone(r.sinks)}
	r.put(parsley.Key{Kind: parsley.KeyScope}, now.Append(nil))
	return r
}

func (r *reference) restore(old *parsley.Scope) (recorded bool) {
	for _, k := range sortedKeys(r.store) {
		v := r.store.all()[k]
		key := must(parsley.ParseKey([]byte(k)))
		switch c := key.Channel; key.Kind {
		case parsley.KeyScope:
			recorded = true
			must(0, old.Decode(v, parsley.Parity))
		case parsley.KeyCarried:
			must(0, r.ca.Decode(v, parsley.Parity))
		case parsley.KeyFrontier:
			r.f[c] = must(parsley.DecodeFrontier(v, parsley.Parity))
		case parsley.KeyAdvertised:
			r.cc[c] = &parsley.Clock{}
			must(0, r.cc[c].Decode(v, parsley.Parity))
		case parsley.KeyQueue:
			r.head[c] = must(parsley.DecodeQueue(v, parsley.Parity)).Head
		case parsley.KeyHeld:
			var h parsley.Held
			must(0, h.Decode(v, parsley.Parity))
			r.queues[c] = append(r.queues[c], h)
		case parsley.KeySent:
			r.sq[c] = must(parsley.DecodeSent(v, parsley.Parity))
			r.baseline[c] = r.sq[c]
		case parsley.KeyMark:
			r.ds[parsley.SequenceKey{Channel: c, Sender: key.Sender}] = must(parsley.DecodeMark(v, parsley.Parity))
		}
	}
	return recorded
}

func sortedKeys(m *Memory) (keys []string) {
	for k := range m.all() {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (r *reference) rescope(old *parsley.Scope, wroteCA bool) {
	for _, c := range old.Channels {
		if slices.Contains(r.consumed, c) {
			continue
		}
		if len(r.queues[c]) > 0 {
			panic("held records on a removed input")
		}
		r.ca.RaiseOffset(c, r.at(r.f, c, -1))
		if cc := r.cc[c]; cc != nil {
			r.ca.Merge(cc)
		}
		wroteCA = true
		delete(r.f, c)
		delete(r.cc, c)
		r.store.Delete(parsley.Key{Kind: parsley.KeyFrontier, Channel: c}.Append(nil))
		r.store.Delete(parsley.Key{Kind: parsley.KeyAdvertised, Channel: c}.Append(nil))
		r.store.Delete(parsley.Key{Kind: parsley.KeyQueue, Channel: c}.Append(nil))
		for k := range r.ds {
			if k.Channel == c {
				delete(r.ds, k)
				r.store.Delete(parsley.Key{Kind: parsley.KeyMark, Channel: c, Sender: k.Sender}.Append(nil))
			}
		}
	}
	if wroteCA {
		r.put(parsley.Key{Kind: parsley.KeyCarried}, r.ca.Append(nil))
	}
	for _, c := range r.consumed {
		if slices.Contains(old.Channels, c) {
			continue
		}
		v := r.at(r.own, c, -1)
		for _, k := range append([]*parsley.Clock{&r.ca}, r.clocks()...) {
			if n, ok := k.Offset(c); ok {
				v = max(v, n)
			}
		}
		if v >= 0 {
			r.resume[c] = v + 1
			r.frontier(c, v)
		}
	}
}

func (r *reference) clocks() (list []*parsley.Clock) {
	for _, c := range r.consumed {
		if k := r.cc[c]; k != nil {
			list = append(list, k)
		}
	}
	return list
}

func (r *reference) frontier(c parsley.Channel, n int64) bool {
	if n <= r.at(r.f, c, -1) {
		return false
	}
	r.f[c] = n
	r.put(parsley.Key{Kind: parsley.KeyFrontier, Channel: c}, parsley.AppendNumber(nil, n))
	return true
}

func (r *reference) receive(c parsley.Channel, h *parsley.Held) []Delivery {
	if h.Offset <= r.at(r.f, c, -1) {
		return nil
	}
	r.known[c] = max(r.known[c], h.Offset)
	if len(r.queues[c]) == 0 {
		r.frontier(c, h.Offset-1)
	}
	if !h.Clock.Empty() {
		if r.cc[c] == nil {
			r.cc[c] = &parsley.Clock{}
		}
		r.cc[c].Merge(&h.Clock)
		r.put(parsley.Key{Kind: parsley.KeyAdvertised, Channel: c}, r.cc[c].Append(nil))
	}
	kept := *h
	kept.Clock, kept.Headers = parsley.Clock{}, nil
	kept.Clock.CopyFrom(&h.Clock)
	r.put(parsley.Key{Kind: parsley.KeyHeld, Channel: c, Index: r.head[c] + int64(len(r.queues[c]))}, kept.Append(nil))
	r.queues[c] = append(r.queues[c], kept)
	r.meta(c)
	r.known[c] = max(r.known[c], h.Offset+1)
	return r.cascade()
}

func (r *reference) meta(c parsley.Channel) {
	q := parsley.Queue{Head: r.head[c], Tail: r.head[c] + int64(len(r.queues[c]))}
	r.put(parsley.Key{Kind: parsley.KeyQueue, Channel: c}, q.Append(nil))
}

func (r *reference) positionAdvance(c parsley.Channel, p int64) []Delivery {
	r.known[c] = max(r.known[c], p)
	if len(r.queues[c]) == 0 && r.frontier(c, p-1) {
		return r.cascade()
	}
	return nil
}

func (r *reference) cascade() (out []Delivery) {
	for changed := true; changed; {
		changed = false
		for _, c := range r.consumed {
			for len(r.queues[c]) > 0 && r.deliverable(c, &r.queues[c][0].Clock) {
				h := r.queues[c][0]
				r.store.Delete(parsley.Key{Kind: parsley.KeyHeld, Channel: c, Index: r.head[c]}.Append(nil))
				r.queues[c] = r.queues[c][1:]
				r.head[c]++
				r.meta(c)
				r.frontier(c, h.Offset)
				if h.Tagged {
					k := parsley.SequenceKey{Channel: c, Sender: h.Sender}
					if m, ok := r.ds[k]; !ok || h.Sequence > m.Sequence {
						r.ds[k] = parsley.Mark{Sequence: h.Sequence, Offset: h.Offset}
						r.put(parsley.Key{Kind: parsley.KeyMark, Channel: c, Sender: h.Sender}, r.ds[k].Append(nil))
					}
				}
				out = append(out, Delivery{Channel: c, Offset: h.Offset, Timestamp: h.Timestamp, Key: h.Key, Value: h.Value})
				changed = true
			}
			k := r.known[c] - 1
			if len(r.queues[c]) > 0 {
				k = r.queues[c][0].Offset - 1
			}
			changed = r.frontier(c, k) || changed
		}
	}
	return out
}

func (r *reference) deliverable(c parsley.Channel, claims *parsley.Clock) bool {
	for _, e := range claims.Offsets() {
		if e.Key != c && slices.Contains(r.consumed, e.Key) && r.at(r.f, e.Key, -1) < e.N {
			return false
		}
	}
	for _, e := range claims.Sequences() {
		if e.Key.Channel == c || !slices.Contains(r.consumed, e.Key.Channel) {
			continue
		}
		if m, ok := r.ds[e.Key]; !ok || m.Sequence < e.N {
			return false
		}
	}
	return true
}

// merged is the clock of a stamp before it is normalised.
func (r *reference) merged() *parsley.Clock {
	m := &parsley.Clock{}
	for c, n := range r.f {
		m.RaiseOffset(c, n)
	}
	for _, k := range r.clocks() {
		m.Merge(k)
	}
	m.Merge(&r.ca)
	for c, n := range r.own {
		m.RaiseOffset(c, n)
	}
	return m
}

func (r *reference) stamp(dest parsley.Channel) (*parsley.Clock, int64) {
	m := r.merged()
	for _, e := range slices.Clone(m.Sequences()) {
		c := e.Key.Channel
		if e.Key.Sender != r.sender {
			if mark, ok := r.ds[e.Key]; ok && mark.Sequence >= e.N {
				m.RemoveSequence(e.Key)
				m.RaiseOffset(c, mark.Offset)
			}
			continue
		}
		m.RemoveSequence(e.Key)
		if e.N > r.at(r.baseline, c, -1) {
			continue
		}
		if own, ok := r.own[c]; ok {
			m.RaiseOffset(c, own)
		} else if n, ok := r.ca.Offset(c); ok {
			m.RaiseOffset(c, n)
		}
	}
	for c, n := range r.sq {
		if n > r.at(r.baseline, c, -1) {
			m.RaiseSequence(parsley.SequenceKey{Channel: c, Sender: r.sender}, n)
		}
	}
	n := r.at(r.sq, dest, -1) + 1
	r.sq[dest] = n
	r.put(parsley.Key{Kind: parsley.KeySent, Channel: dest}, parsley.AppendNumber(nil, n))
	return m, n
}

func (r *reference) truncate(bound *parsley.Clock) {
	keep := func(e parsley.OffsetClaim) bool {
		b, ok := bound.Offset(e.Key)
		return !ok || e.N > b
	}
	r.ca.FilterOffsets(keep)
	r.put(parsley.Key{Kind: parsley.KeyCarried}, r.ca.Append(nil))
	for _, c := range r.consumed {
		if k := r.cc[c]; k != nil {
			k.FilterOffsets(keep)
			r.put(parsley.Key{Kind: parsley.KeyAdvertised, Channel: c}, k.Append(nil))
		}
	}
}
