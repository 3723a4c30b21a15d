package causal

import "kaas/codec/parsley"

// Flush writes all that changed since the last time, coalesced: of many changes of a value the last, and nothing of records
// that came and went. The host applies it in one batch, with whatever belongs to the same step or transaction, before it
// calls the node again; if that fails the node is to be discarded.
func (n *Node) Flush(w Writer) {
	f := flusher{n: n, w: w}
	if n.scopeDirty {
		s := parsley.Scope{Channels: append([]parsley.Channel(nil), n.ids...), Sinks: append(n.cfg.Sinks[:0:0], n.cfg.Sinks...)}
		n.value = s.Append(n.value[:0])
		f.put(parsley.Key{Kind: parsley.KeyScope})
		n.scopeDirty = false
	}
	for _, key := range n.removed {
		w.Delete(key)
		n.counts.StoreOps++
	}
	n.removed = nil
	if n.carriedDirty {
		n.value = n.carried.Append(n.value[:0])
		f.put(parsley.Key{Kind: parsley.KeyCarried})
		n.carriedDirty = false
	}
	for _, c := range n.dirtyChannels {
		f.channel(c)
	}
	for _, s := range n.dirtySinks {
		n.value = parsley.AppendNumber(n.value[:0], s.sent)
		f.putAt(&s.key, parsley.Key{Kind: parsley.KeySent, Channel: s.id})
		s.dirty = false
	}
	n.dirtyChannels, n.dirtySinks = n.dirtyChannels[:0], n.dirtySinks[:0]
	n.pending = 0
}

// Commit flushes into the store in one batch. Every operation goes to changelog first, if it is not nil, in the same order.
func (n *Node) Commit(changelog Writer) error {
	if n.err != nil {
		return n.err
	}
	if !n.Dirty() {
		return nil
	}
	n.counts.StoreBatches++
	err := n.store.Write(func(w Writer) {
		if changelog != nil {
			w = tee{changelog, w}
		}
		n.Flush(w)
	})
	if err != nil {
		return n.fail("commit", parsley.Channel{}, -1, err)
	}
	return nil
}

// Dirty says whether there is something to flush.
func (n *Node) Dirty() bool {
	return n.scopeDirty || n.carriedDirty || len(n.removed) > 0 || len(n.dirtyChannels) > 0 || len(n.dirtySinks) > 0
}

// Pending is the size of the held records that wait for the next Flush, all of which are in memory.
func (n *Node) Pending() (bytes int64) { return n.pending }

// tee is two writers.
type tee struct{ first, second Writer }

func (t tee) Put(key, value []byte) {
	t.first.Put(key, value)
	t.second.Put(key, value)
}

func (t tee) Delete(key []byte) {
	t.first.Delete(key)
	t.second.Delete(key)
}

type flusher struct {
	n *Node
	w Writer
}

// put writes Node.value under key.
func (f *flusher) put(key parsley.Key) {
	f.n.key = key.Append(f.n.key[:0])
	f.w.Put(f.n.key, f.n.value)
	f.n.counts.StoreOps++
}

// putAt is put for a key that is written again and again, and made once: cached is nil before.
func (f *flusher) putAt(cached *[]byte, key parsley.Key) {
	if *cached == nil {
		*cached = key.Append(nil)
	}
	f.w.Put(*cached, f.n.value)
	f.n.counts.StoreOps++
}

func (f *flusher) channel(c *channel) {
	n := f.n
	if c.frontierDirty {
		n.value = parsley.AppendNumber(n.value[:0], c.frontier)
		f.putAt(&c.keys.frontier, parsley.Key{Kind: parsley.KeyFrontier, Channel: c.id})
	}
	if c.advertisedDirty {
		n.value = c.advertised.Append(n.value[:0])
		f.putAt(&c.keys.advertised, parsley.Key{Kind: parsley.KeyAdvertised, Channel: c.id})
	}
	for _, m := range c.dirtyMarks {
		n.value = parsley.Mark{Sequence: m.sequence, Offset: m.offset}.Append(n.value[:0])
		f.putAt(&m.key, parsley.Key{Kind: parsley.KeyMark, Channel: c.id, Sender: m.sender})
		m.dirty = false
	}
	if c.queue.dirty {
		f.queue(c)
	}
	c.dirty, c.frontierDirty, c.advertisedDirty, c.dirtyMarks = false, false, false, c.dirtyMarks[:0]
}

func (f *flusher) queue(c *channel) {
	n, q := f.n, &c.queue
	for end := min(q.head, q.diskEnd); q.diskHead < end; q.diskHead++ {
		n.key = parsley.Key{Kind: parsley.KeyHeld, Channel: c.id, Index: q.diskHead}.Append(n.key[:0])
		f.w.Delete(n.key)
		n.counts.StoreOps++
	}
	if q.fresh.len() > 0 {
		first := q.firstFresh()
		if q.diskHead == q.diskEnd {
			q.diskHead = first
		}
		stay := q.head+int64(q.pages.len()) == first
		for i := first; q.fresh.len() > 0; i++ {
			b := q.fresh.pop()
			n.key = parsley.Key{Kind: parsley.KeyHeld, Channel: c.id, Index: i}.Append(n.key[:0])
			f.w.Put(n.key, b)
			n.counts.StoreOps++
			if stay = stay && n.memory+int64(len(b)) <= n.cfg.HeldBytes; stay {
				q.pages.push(b)
				n.memory += int64(len(b))
			}
		}
		q.diskEnd = q.tail
	}
	n.value = parsley.Queue{Head: q.head, Tail: q.tail}.Append(n.value[:0])
	f.putAt(&c.keys.queue, parsley.Key{Kind: parsley.KeyQueue, Channel: c.id})
	q.dirty = false
}
