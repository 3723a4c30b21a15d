package netio

// Idle connections are found by coarse buckets: a connection sits in the bucket
// of the time at which it would have been idle for too long when it was put
// there. Traffic only stores a time; when a bucket is due, its connections are
// closed or moved to where their last traffic puts them. That touches each
// connection about once per connections.max.idle.ms, and a loop without
// connections has no timer at all.

const (
	idleParts   = 16 // buckets per idle time: a connection is closed up to 1/16 late
	idleBuckets = idleParts + 4
	// closedMax is how many connections that are idle, or too many, a loop closes in a round: thousands that fell silent together would keep it from
	// the others for as long as their closing takes, some 10 µs each.
	closedMax = 256
)

type idleRing struct {
	loop  *Loop
	max   int64 // idle time in ms; 0: never close
	width int64 // ms per bucket
	next  int64 // absolute number of the first bucket not yet looked at
	heads [idleBuckets]*Conn
	timer Timer
}

func (r *idleRing) init(l *Loop, max int64) {
	r.loop, r.max = l, max
	r.width = (max + idleParts - 1) / idleParts
	r.timer.Fn = r.run
}

// add files c under the time at which it will have been idle too long.
func (r *idleRing) add(c *Conn) {
	if r.max <= 0 {
		return
	}
	bucket := r.insert(c)
	if !r.timer.Set() {
		r.next = bucket
		r.loop.SetTimer(&r.timer, bucket*r.width)
	}
}

// insert puts c into its bucket and returns the bucket's absolute number.
func (r *idleRing) insert(c *Conn) int64 {
	bucket := (c.lastActive+r.max)/r.width + 1
	head := &r.heads[bucket%idleBuckets]
	c.idleBucket = int8(bucket % idleBuckets)
	c.idlePrev, c.idleNext = nil, *head
	if *head != nil {
		(*head).idlePrev = c
	}
	*head = c
	return bucket
}

// remove takes c out of its bucket.
func (r *idleRing) remove(c *Conn) {
	if r.max <= 0 {
		return
	}
	if c.idlePrev != nil {
		c.idlePrev.idleNext = c.idleNext
	} else if r.heads[c.idleBucket] == c {
		r.heads[c.idleBucket] = c.idleNext
	}
	if c.idleNext != nil {
		c.idleNext.idlePrev = c.idlePrev
	}
	c.idlePrev, c.idleNext = nil, nil
}

// run looks at the buckets that are due and sets the timer for the next one that
// is not empty, or for the next round if there is more to close than a round may.
func (r *idleRing) run() {
	now := r.loop.now
	first, last := r.next, min(now/r.width, r.next+idleBuckets-1)
	r.next = last + 1
	closed := 0
	for bucket := first; bucket <= last; bucket++ {
		c := r.heads[bucket%idleBuckets]
		r.heads[bucket%idleBuckets] = nil
		for c != nil {
			if closed == closedMax {
				c.idlePrev, r.heads[bucket%idleBuckets], r.next = nil, c, bucket
				r.loop.SetTimer(&r.timer, now+1) // in another round, whatever other timers are due in this one
				return
			}
			following := c.idleNext
			c.idlePrev, c.idleNext = nil, nil
			if c.lastActive+r.max <= now && c.readable() && unread(c.fd) > 0 {
				c.lastActive = now // the loop or the machine was stopped: not the peer's silence
			}
			if c.lastActive+r.max <= now {
				r.loop.stats.idleClosed.Add(1)
				c.Close(ErrIdle)
				closed++
			} else {
				r.insert(c)
			}
			c = following
		}
	}
	for bucket := r.next; bucket < r.next+idleBuckets; bucket++ {
		if r.heads[bucket%idleBuckets] != nil {
			r.next = bucket
			r.loop.SetTimer(&r.timer, bucket*r.width)
			return
		}
	}
}
