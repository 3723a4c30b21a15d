package simulate

import (
	"kaas/codec/parsley"
)

// client is a plain producer or observer with a running clock.
type client struct {
	w      *world
	name   string
	actor  *actor
	edge   parsley.Edge
	plain  bool // stamps nothing: it claims nothing, and what it sends has no past
	script []emission
	paced  bool     // sends no more than it read, while there is something to read
	ahead  int      // read and not yet answered
	aborts int      // percent of records that are in a transaction that is aborted
	topics []string // that it reads
	reads  []feed
}

// client makes one that sends script in order and reads the given topics between.
func (w *world) client(name string, script []emission, reads ...string) *client {
	c := &client{w: w, name: name, script: script, topics: reads}
	c.actor = w.oracle.actor(name)
	for _, s := range reads {
		c.reads = append(c.reads, feed{log: w.logOf(s)})
	}
	w.clients = append(w.clients, c)
	return c
}

// produce sends the next record of the script and waits for its acknowledgement.
func (c *client) produce() {
	e := c.script[0]
	c.script = c.script[1:]
	c.ahead--
	if c.w.topics[e.topic].deleted {
		return
	}
	p := c.w.route(e.topic, e.key)
	r := &record{timestamp: int64(c.w.steps), key: e.key, value: e.value, sequence: -1}
	if c.plain {
		c.actor.now.knows = nil
	} else {
		r.headers, _ = c.edge.Stamp(nil, nil)
	}
	var tx *transaction
	if c.aborts > 0 && c.w.chance(c.aborts) {
		tx = &transaction{}
	}
	c.w.append(tx, p, r)
	c.w.oracle.sent(c.actor, r)
	c.edge.Produced(p.id, r.offset)
	if tx == nil {
		c.actor.commit()
		return
	}
	tx.finish(false) // its clock goes on claiming what was aborted, which only delays
	c.actor.abort()
	c.w.reached("aborted")
}

// read observes the next record of topic i.
func (c *client) read(i int) {
	f := &c.reads[i]
	offset, _ := f.log.next(f.position)
	r := f.log.slots[offset].record
	f.position = offset + 1
	c.ahead++
	var clock []byte
	for _, h := range r.headers {
		if h.Key == parsley.HeaderClock {
			clock = h.Value
		}
	}
	if err := c.edge.Observe(f.log.id, offset, clock, parsley.Strict); err != nil {
		fail(refused, "%s: %v", c.name, err)
	}
	c.actor.observed(r)
	c.actor.commit()
	c.w.reached("observed")
}

// stranger is a producer that nobody knows, whose transaction stays open for a while.
func (w *world) stranger() {
	tx := &transaction{}
	actor := w.oracle.actor("stranger")
	for range 1 + w.n(2) {
		var there []*partition
		for _, p := range w.all {
			if !p.destroyed {
				there = append(there, p)
			}
		}
		if len(there) == 0 {
			return
		}
		p := pick(w.dice, there)
		r := &record{timestamp: int64(w.steps), value: []byte{0}, sequence: -1}
		actor.now.knows = nil
		w.append(tx, p, r)
		w.oracle.sent(actor, r)
	}
	w.strangers = append(w.strangers, tx)
	w.reached("open transaction")
}
