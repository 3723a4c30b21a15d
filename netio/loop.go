package netio

import (
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Task is work for a loop: an object that is pooled by its owner, so that posting
// it allocates nothing. A panic in Run is not caught.
type Task interface{ Run() }

const (
	eventsMax  = 256     // connections served per round
	adoptMax   = 64      // connections accepted per round and listener
	discardLen = 4 << 10 // scratch for bytes thrown away
	bigRoom    = 16 << 10
	wakeSlot   = -1 // epoll data of the eventfd; listeners are below it
)

// wakeOne is what an eventfd is written with; nobody reads the sum.
var wakeOne = [8]byte{1}

// Loop is one event loop and the connections it owns. Its methods are for its own
// goroutine, except Post.
type Loop struct {
	// Data is for the handler: scratch that all its connections share.
	Data any

	server       *Server
	handler      Handler
	beforeSleep  func(*Loop)
	onDone       func(*Loop, []Done)
	log          *slog.Logger
	pools        *bufferPools
	index        int
	epfd, wakefd int
	maxFrame     int32
	pauseReplies int
	pauseBytes   int

	now    int64 // ms since the server was made
	nano   int64 // the same in ns
	later  int64 // a time in ns read since, 0 for none
	time   time.Time
	timers timerHeap
	idle   idleRing

	conns    []*Conn // by slot
	free     []int32 // empty slots
	open     int     // connections
	draining bool
	ended    bool

	events      []unix.EpollEvent
	large       []int  // those of connections with large frames that this round has not served
	lastLarge   int32  // slot of the last one of them that was served
	read        []byte // read[:filled] holds frames delivered in this round
	filled      int
	delivered   bool     // a frame was delivered since the last RoundEnd
	retired     []*inbuf // buffers to give back after RoundEnd
	ready       []*Conn  // have kept frames to deliver
	readySpare  []*Conn
	dirty       []*Conn // may have replies to send
	closedConns []*Conn // Handler.Closed is due
	turns       []*Conn // turns[turnHead:] send file slices, in a circle
	turnHead    int
	fileLeft    int // bytes of files that this round may still send

	done           []Done // replies that left, OnDone is yet to be told
	freeReplies    []*Reply
	freeReplyBytes int
	iov            []unix.Iovec
	cipher, plain  []byte // scratch of TLS, made when there is some
	look           looker
	hdr            unix.Msghdr
	discard        [discardLen]byte

	budget                    budget
	stats                     loopStats
	frames, bytesIn, bytesOut int64 // of this round, not yet in stats

	assigned atomic.Int64 // connections given to it and not yet closed

	sleeping atomic.Bool
	posted   atomic.Bool
	wakers   atomic.Int32 // goroutines about to write wakefd
	mu       sync.Mutex   // guards the four below
	posts    []Task
	spare    []Task
	stopped  bool // the loop has ended: who posts runs the task
	late     bool // somebody is doing that
}

func newLoop(s *Server, index int) (*Loop, error) {
	l := &Loop{
		server: s, handler: s.handler, beforeSleep: s.cfg.BeforeSleep, onDone: s.cfg.OnDone, log: s.cfg.Logger, pools: &s.pools, index: index,
		maxFrame: s.cfg.MaxFrameBytes, pauseReplies: s.cfg.PausePendingReplies, pauseBytes: s.cfg.PausePendingBytes,
		events: make([]unix.EpollEvent, eventsMax), read: make([]byte, s.cfg.ReadBufferBytes), iov: make([]unix.Iovec, iovMax),
		look: looker{way: s.lookWay},
	}
	l.budget.init(s.cfg.InflightBytes, s.cfg.RequestBytes, s.cfg.Loops)
	l.idle.init(l, s.cfg.IdleMax.Milliseconds())
	var err error
	if l.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	if l.wakefd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		unix.Close(l.epfd)
		return nil, err
	}
	// Edge-triggered: each write is one event, and nobody has to read the counter.
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: wakeSlot}
	if err = unix.EpollCtl(l.epfd, unix.EPOLL_CTL_ADD, l.wakefd, &event); err != nil {
		unix.Close(l.epfd)
		unix.Close(l.wakefd)
		return nil, err
	}
	l.tick()
	return l, nil
}

// Index is the number of the loop in its server, from 0.
func (l *Loop) Index() int { return l.index }

// Now is the time at the start of the round: milliseconds since the server was
// made, monotonic.
func (l *Loop) Now() int64 { return l.now }

// Time is the time at the start of the round.
func (l *Loop) Time() time.Time { return l.time }

// Conns is the number of connections of the loop.
func (l *Loop) Conns() int { return l.open }

// Idle tells whether the loop has nothing to do but wait for its sockets and timers.
func (l *Loop) Idle() bool {
	return len(l.ready) == 0 && len(l.dirty) == 0 && len(l.turns) == 0 && len(l.closedConns) == 0 && !l.posted.Load()
}

// Post runs t on the loop, in the order of the posts. Any goroutine. After the
// loop has ended t runs on a posting goroutine, one at a time.
func (l *Loop) Post(t Task) {
	l.mu.Lock()
	l.posts = append(l.posts, t)
	l.posted.Store(true)
	late := l.stopped && !l.late
	if late {
		l.late = true
	}
	l.mu.Unlock()
	if late {
		l.runLate()
		return
	}
	if l.sleeping.Load() {
		l.wake()
	}
}

// wake writes the eventfd if nobody else did. wakers keeps it open meanwhile.
func (l *Loop) wake() {
	l.wakers.Add(1)
	if l.sleeping.CompareAndSwap(true, false) {
		_, _ = unix.Write(l.wakefd, wakeOne[:])
		l.stats.wakes.Add(1)
	}
	l.wakers.Add(-1)
}

// runPosts runs what was posted up to now; tasks posted by them come next round.
func (l *Loop) runPosts() {
	if !l.posted.Load() {
		return
	}
	l.mu.Lock()
	tasks := l.posts
	l.posts = l.spare[:0]
	l.posted.Store(false)
	l.mu.Unlock()
	for i, t := range tasks {
		tasks[i] = nil
		t.Run()
	}
	l.mu.Lock()
	l.spare = tasks
	l.mu.Unlock()
}

// Flush runs what was posted and sends the answers that are complete, for a handler that goes on working in RoundEnd: who waits for them
// need not wait for that too. Only from RoundEnd.
func (l *Loop) Flush() {
	l.runPosts()
	l.settle()
}

// runLate runs tasks posted after the end of the loop, on the caller's goroutine.
func (l *Loop) runLate() {
	for {
		l.mu.Lock()
		tasks := l.posts
		l.posts = nil
		l.posted.Store(false)
		if len(tasks) == 0 {
			l.late = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		for _, t := range tasks {
			t.Run()
		}
		l.settle()
	}
}

// tick reads the clock.
func (l *Loop) tick() {
	l.time = time.Now()
	l.nano = int64(l.time.Sub(l.server.start))
	l.now, l.later = l.nano/int64(time.Millisecond), 0
}

// timeout is how long the loop may sleep, in ms; -1: until something happens.
func (l *Loop) timeout() int {
	if !l.Idle() || len(l.large) > 0 {
		return 0
	}
	if len(l.timers) == 0 {
		return -1
	}
	now := l.later / int64(time.Millisecond)
	if now == 0 {
		now = time.Since(l.server.start).Milliseconds()
	}
	return int(min(max(l.timers[0].at-now, 0), 1<<30))
}

// wait returns the number of events; the hook before sleep runs first, if the
// loop would sleep.
func (l *Loop) wait() int {
	timeout := l.timeout()
	if timeout != 0 && l.beforeSleep != nil {
		l.beforeSleep(l)
		l.settle()
		timeout = l.timeout()
	}
	if timeout != 0 {
		l.sleeping.Store(true)
		if l.posted.Load() {
			l.sleeping.Store(false)
			timeout = 0
		}
	}
	n, e := epollWait(l.epfd, l.events, timeout)
	if timeout != 0 {
		l.sleeping.Store(false)
	}
	l.tick()
	if e != 0 {
		if e != unix.EINTR {
			panic("BUG: epoll_wait: " + e.Error())
		}
		return 0
	}
	return n
}

func (l *Loop) run() {
	for !l.draining || l.open > 0 {
		l.round(l.wait())
	}
	l.end()
}

// end runs what is posted and leaves later posts to their goroutines.
func (l *Loop) end() {
	l.settle()
	l.mu.Lock()
	l.stopped, l.late = true, true
	l.mu.Unlock()
	l.ended = true
	l.runLate()
	for l.wakers.Load() != 0 {
		runtime.Gosched()
	}
	unix.Close(l.epfd)
	unix.Close(l.wakefd)
}

func (l *Loop) round(n int) {
	l.fileLeft = roundBytes
	l.lookAtBudget()
	l.runPosts()
	l.runTimers()
	l.runReady()
	l.serve(n)
	l.endReads()
	l.runTurns()
	l.settle()
	l.feed()
	l.stats.publish(l)
}

// runReady delivers frames kept by connections that may go on.
func (l *Loop) runReady() {
	if len(l.ready) == 0 {
		return
	}
	ready := l.ready
	l.ready = l.readySpare[:0]
	for i, c := range ready {
		ready[i] = nil
		c.isReady = false
		switch {
		case !c.readable():
		case c.kept:
			l.deliverKept(c)
			if c.sec != nil {
				c.sec.endStream()
			}
		case c.sec != nil && c.sec.fresh:
			l.readConn(c)
			if c.readable() { // while it was not, cannotRead may have stopped its events
				c.listen(c.interest | unix.EPOLLIN | unix.EPOLLRDHUP)
			}
		}
	}
	l.readySpare = ready
}

// event serves one event of epoll.
func (l *Loop) event(e *unix.EpollEvent) {
	if e.Fd == wakeSlot {
		return
	}
	if e.Fd < wakeSlot {
		l.server.listeners[wakeSlot-1-e.Fd].accept()
		return
	}
	c := l.conns[e.Fd]
	if c == nil || int32(c.id) != e.Pad {
		return // closed in this round
	}
	if e.Events&unix.EPOLLOUT != 0 {
		c.blocked = false
		if !c.waiting() && (c.head != nil && c.head.state == replyReady || c.closing) || c.sec != nil && c.sec.out != nil {
			l.markDirty(c)
		} else {
			c.listen(c.interest &^ unix.EPOLLOUT)
		}
	}
	if e.Events&^unix.EPOLLOUT == 0 {
		return
	}
	switch {
	case c.sec != nil && !c.sec.direct:
		if !c.closed {
			l.readHandshake(c, e.Events)
		}
	case c.readable():
		l.readConn(c)
	default:
		l.cannotRead(c, e.Events)
	}
}

// readConn reads c once. First it ends the round of reads if the buffer is nearly full.
func (l *Loop) readConn(c *Conn) {
	if len(l.read)-l.filled < len(l.read)/4 {
		l.endReads()
	}
	switch {
	case !c.readable() || c.kept || l.starve(c):
	case c.in == nil:
		l.readFresh(c)
	default:
		l.readRest(c)
	}
	c.account()
	c.waitForRest()
	if c.sec != nil {
		c.sec.endStream()
	}
	if l.delivered && int(c.lastFrame) >= lowWaterMin {
		l.endReads() // while the frame is in the processor's cache, and so that the next one gets its memory
	}
}

// room is where the next read may write. A peer that sends large frames gets
// little of it: what follows a frame is the start of the next one and would be
// copied, better to read it into a buffer of its own.
func (l *Loop) room(c *Conn) []byte {
	room := l.read[l.filled:]
	if c.sec == nil && int(c.lastFrame) >= len(l.read)/2 && len(room) > bigRoom {
		room = room[:bigRoom]
	}
	return room
}

// cannotRead serves events of a connection that is held, paused or closing. Its
// socket stays registered until it fires, so a short hold costs no epoll_ctl.
func (l *Loop) cannotRead(c *Conn, events uint32) {
	switch {
	case events&(unix.EPOLLHUP|unix.EPOLLERR) != 0:
		err := socketError(c.fd)
		if c.closing {
			err = c.closeErr
		}
		c.Close(err)
	case events&unix.EPOLLRDHUP != 0 && !c.closing && c.in == nil && unread(c.fd) == 0:
		c.Close(nil)
	default:
		c.listen(c.interest &^ (events & (unix.EPOLLIN | unix.EPOLLRDHUP)))
	}
}

// endReads ends a round of reads: after it the read buffer is empty.
func (l *Loop) endReads() {
	if l.delivered {
		l.delivered = false
		l.handler.RoundEnd(l)
		l.runPosts() // above all what RoundEnd posted: answers, which would cost a round of their own otherwise
	}
	for i, b := range l.retired {
		l.retired[i] = nil
		l.pools.put(b)
	}
	l.retired = l.retired[:0]
	l.filled = 0
	l.settle()
}

// retire gives a buffer back when the frames in it are no longer valid.
func (l *Loop) retire(b *inbuf) { l.retired = append(l.retired, b) }

// adopt registers a connection made by the loop that accepted it.
func (l *Loop) adopt(c *Conn) {
	if l.ended {
		unix.Close(c.fd)
		l.server.leave(c)
		return
	}
	if n := len(l.free); n > 0 {
		c.slot = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		c.slot = int32(len(l.conns))
		l.conns = append(l.conns, nil)
	}
	l.conns[c.slot] = c
	l.open++
	l.stats.opened.Add(1)
	c.lastActive = l.now
	l.idle.add(c)
	c.interest = unix.EPOLLIN | unix.EPOLLRDHUP
	event := unix.EpollEvent{Events: c.interest, Fd: c.slot, Pad: int32(c.id)}
	err := unix.EpollCtl(l.epfd, unix.EPOLL_CTL_ADD, c.fd, &event)
	if c.sec == nil {
		l.opened(c)
	} else {
		l.makeCipher()
		l.setDeadline(c.sec)
	}
	switch {
	case err != nil:
		c.Close(err)
	case l.draining:
		c.Close(ErrStopped)
	}
}

// forget takes a closed connection out of the tables of the loop.
func (l *Loop) forget(c *Conn) {
	l.conns[c.slot] = nil
	l.free = append(l.free, c.slot)
	l.open--
	l.stats.closed.Add(1)
	l.server.leave(c)
}
