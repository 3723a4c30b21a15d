package netio

// The budget bounds the memory that all connections of a Server hold together: requests not yet answered, in part or whole, and answers
// that their peers have not read. When six eighths of it are used no more is read, whoever sends; nobody is closed for it. Connections
// that were not read are in a queue, and are read again in its order as soon as three eighths of the budget are free.
//
// Pieces of requests that fill it could never be completed, and peers that read nothing would keep out those that do. So one connection of
// each loop whose peer has read all its answers has a turn, for one request. It is over when that is answered and the answer read, or when
// the peer has not sent or read a byte for a while. Turns are given as long as some of the last eighth of the budget is free, to peers
// that have not taken an answer yet as long as some of the one before it is. Those that hold bytes of a request have turns at any level,
// for nothing else than their end frees these. Above the budget a turn that holds memory does not pass on, or each that has it would take
// more: what is over the budget is one request and its answer for each loop, however many peers there are, and while all peers send and
// read, one request after the other is completed.
//
// So that it seldom comes to that, what one connection may have unread before it is paused shrinks as the budget fills: to the shareOf-th part
// of what is free below feedEighths. So those that never read stay below the level at which others would notice, a few hundred of them
// at least.
//
// Each loop counts for itself, without atomic operations. It shows its count, and looks at those of the others, once a round and whenever
// its own has changed by a small step: loops that read much in one round must not use up the budget each for itself.

const (
	starvedScan    = 64   // connections looked at for a turn at a time
	fedMax         = 16   // connections read again per round
	starvedRetryMs = 10   // between two looks at the budget, which other loops may have freed
	turnStallMs    = 1000 // without a byte, until a turn passes on
	shareOf        = 128  // see above
	shareMin       = 64 << 10
	budgetSteps    = 64 // parts of the budget that all loops together may have used and not shown
)

// budget is a loop's part in the budget. It belongs to the loop, but for its share in Server.held.
type budget struct {
	most, requestsMost int64 // bytes; 0: no limit
	requests, replies  int64 // held by this loop
	shown, step        int64 // bytes that the others know of, and how far off that may be
	stallMs            int64 // turnStallMs
	others             held  // what the other loops have shown
	starved            []*Conn
	exempt             *Conn // has a turn
	exemptServed       bool  // its request was delivered
	timer              Timer
}

// held is memory in bytes.
type held struct{ requests, replies int64 }

// Eighths of the budget: above stopEighths nothing is read, below feedEighths those that waited are.
const (
	feedEighths     = 5
	stopEighths     = 6
	strangerEighths = 7 // above it turns are for those that took an answer before
	allEighths      = 8
)

// init sets the limits of the budget of each of so many loops.
func (b *budget) init(most, requestsMost int64, loops int) {
	b.most, b.requestsMost, b.stallMs = max(0, most), max(0, requestsMost), turnStallMs
	least := b.most
	if b.requestsMost > 0 && (least == 0 || b.requestsMost < least) {
		least = b.requestsMost
	}
	b.step = least / (budgetSteps * int64(loops))
	b.timer.Fn = func() {} // the round looks
}

// above tells whether so many eighths of the budget are used.
func (b *budget) above(eighths int64) bool {
	requests := b.requests + b.others.requests
	return b.most > 0 && requests+b.replies+b.others.replies >= b.most/allEighths*eighths ||
		b.requestsMost > 0 && requests >= b.requestsMost/allEighths*eighths
}

// pauseLimit is how many bytes of unread answers a connection may have before it is paused.
func (l *Loop) pauseLimit() int {
	b := &l.budget
	if b.most == 0 {
		return l.pauseBytes
	}
	free := b.most/allEighths*feedEighths - b.requests - b.replies - b.others.requests - b.others.replies
	return min(l.pauseBytes, max(shareMin, int(free/shareOf)))
}

// lookAtBudget reads what the other loops hold.
func (l *Loop) lookAtBudget() {
	if len(l.server.loops) < 2 {
		return
	}
	var sum held
	for _, o := range l.server.loops {
		if o != l {
			sum.requests += o.stats.heldRequests.Load()
			sum.replies += o.stats.heldReplies.Load()
		}
	}
	l.budget.others = sum
}

// share is called before the budget is asked: it shows what this loop holds and looks at the others, if that is a step away from what they
// know.
func (l *Loop) share() {
	b := &l.budget
	if off := b.requests + b.replies - b.shown; len(l.server.loops) > 1 && (off > b.step || off < -b.step) {
		l.stats.show(b)
		l.lookAtBudget()
	}
}

// account brings the count of the partial frame of c up to date.
func (c *Conn) account() {
	size := 0
	if c.in != nil {
		size = cap(c.in.b)
	}
	if size != c.inHeld {
		c.loop.budget.requests += int64(size - c.inHeld)
		c.inHeld = size
	}
}

// starve queues a connection that has something to read while the budget is used up; false: it may be read, perhaps to find its end.
func (l *Loop) starve(c *Conn) bool {
	l.share()
	if b := &l.budget; !b.above(stopEighths) || b.exempt == c || !c.hasInput() {
		return false
	}
	l.queueStarved(c)
	return true
}

// hasInput tells whether there are bytes to deliver or to read.
func (c *Conn) hasInput() bool {
	return c.kept || c.sec != nil && c.sec.fresh || unread(c.fd) > 0
}

func (l *Loop) queueStarved(c *Conn) {
	c.starved = true
	l.budget.starved = append(l.budget.starved, c)
	l.stats.starved.Add(1)
}

// tookFrame is called after each frame: what follows it waits if the budget is used up by now.
func (l *Loop) tookFrame(c *Conn) {
	b := &l.budget
	l.share()
	if b.exempt == c {
		b.exemptServed = true
	}
	if c.readable() && b.above(stopEighths) {
		l.queueStarved(c)
	}
}

// endTurn takes the turn from a connection that has used it, or stalls. One that holds memory keeps it above the budget.
func (l *Loop) endTurn() {
	b := &l.budget
	c := b.exempt
	switch {
	case c == nil:
	case c.closed || b.exemptServed && c.head == nil:
		b.exempt = nil
	case l.now-max(c.lastActive, c.exemptAt) > b.stallMs && (c.in == nil && c.head == nil || !b.above(allEighths)):
		b.exempt = nil // it queues again when it is read
	}
}

// mayHaveTurn tells whether a connection of the queue may have the turn, which nobody has.
func (b *budget) mayHaveTurn(c *Conn) bool {
	switch {
	case c.head != nil:
		return false
	case c.in != nil || !b.above(strangerEighths):
		return true
	}
	return c.proven && !b.above(allEighths)
}

// feed lets connections of the queue go on. At the end of a round.
func (l *Loop) feed() {
	b := &l.budget
	l.endTurn()
	if len(b.starved) == 0 {
		return
	}
	for n := 0; n < fedMax && len(b.starved) > 0 && !b.above(feedEighths); n++ {
		l.nourish(b.pop())
	}
	for n := min(starvedScan, len(b.starved)); n > 0 && b.exempt == nil && b.above(feedEighths); n-- {
		switch c := b.pop(); {
		case c.closed:
		case !c.hasInput():
			l.nourish(c) // it queues again when something comes
		case !b.mayHaveTurn(c):
			b.starved = append(b.starved, c)
		default:
			b.exempt, b.exemptServed, c.exemptAt = c, false, l.now
			l.nourish(c)
		}
	}
	switch {
	case len(b.starved) == 0:
		b.starved = nil
		l.StopTimer(&b.timer)
	case b.above(feedEighths):
		l.SetTimer(&b.timer, l.now+starvedRetryMs)
	default:
		l.SetTimer(&b.timer, l.now)
	}
}

// pop takes the first connection of the queue.
func (b *budget) pop() *Conn {
	c := b.starved[0]
	b.starved[0] = nil
	b.starved = b.starved[1:]
	return c
}

// nourish reads a connection again.
func (l *Loop) nourish(c *Conn) {
	c.starved = false
	c.readAgain()
}
