package netio

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A file slice that is not in the page cache would stop the loop, and all its connections, until the disk has answered: milliseconds for what
// takes microseconds otherwise. So a slice that its owner calls old is looked at before it is sent. If a page is missing, a worker reads it
// ahead, the connection rests, and the loop goes on with others; that connection is cold from then on, and a worker goes before it all the
// way, for a look does not tell pages that are on their way from the disk from those that are there. Once a worker finds nothing
// missing any more, it looks for itself again. What a worker has read may be gone before its turn to be sent, where memory is short: so each
// piece for a cold connection is looked at once more just before it is sent, for 0.7 µs in 40.
//
// A worker waits for the pages by sending them to the null device, which copies nothing: 0.03 CPU-s/GiB against 0.15 for reading them.
//
// Tried and lost: looking by preadv2(RWF_NOWAIT) of all that is sent, which knows what is on its way, but copies it: 6 µs for
// each 64 KiB against 1 µs for cachestat and one byte. It is what kernels without cachestat (before 6.5) get.

const (
	lookBytes  = 1 << 20 // looked at, and read by a worker, at a time
	lookMs     = 1000    // after so long a look is not trusted any more: the peer was slow
	touchBytes = 64 << 10
	calmLooks  = 2 // looks without a miss after which a connection looks for itself again
	gonesMax   = 8 // times in a row that what a worker read was gone, until it is sent all the same: the connection must go on
)

// lookWay is how the kernel tells what is in the page cache.
type lookWay uint8

const (
	lookByStat lookWay = iota // cachestat
	lookByRead                // preadv2 with RWF_NOWAIT
)

// findLookWay asks the kernel once: without a file, cachestat says that there is none, if it is there at all.
func findLookWay() lookWay {
	var r unix.CachestatRange
	var st unix.Cachestat_t
	if err := unix.Cachestat(^uint(0), &r, &st, 0); err == unix.EBADF {
		return lookByStat
	}
	return lookByRead
}

// looker looks at the page cache. It belongs to a loop, or to a worker.
type looker struct {
	way   lookWay
	area  unix.CachestatRange
	stat  unix.Cachestat_t
	iov   [1]unix.Iovec
	touch []byte // made when first needed
	sink  int    // the null device, where a worker sends what it waits for; 0: there is none
}

// cached tells how many bytes of [pos, pos+n) of a file are in the page cache for certain, from pos on: all, or fewer if something is missing,
// or if the kernel tells of a part only. Files of which it tells nothing are taken to be there.
func (k *looker) cached(fd int, pos int64, n int) int {
	if k.way == lookByRead {
		return k.readable(fd, pos, min(n, touchBytes))
	}
	if !k.resident(fd, pos, n) || k.readable(fd, pos+int64(n)-1, 1) == 0 {
		return 0
	}
	return n
}

// resident tells whether all pages of [pos, pos+n) are in the page cache, or on their way there; without cachestat, whether the ends are.
func (k *looker) resident(fd int, pos int64, n int) bool {
	if k.way == lookByRead {
		return k.readable(fd, pos, 1) > 0 && k.readable(fd, pos+int64(n)-1, 1) > 0
	}
	k.area.Off, k.area.Len = uint64(pos), uint64(n)
	if err := unix.Cachestat(uint(fd), &k.area, &k.stat, 0); err != nil {
		return true
	}
	pages := (pos+int64(n)-1)/pageBytes - pos/pageBytes + 1
	return k.stat.Cache >= uint64(pages)
}

// readable is how many bytes can be read without waiting, n at most.
func (k *looker) readable(fd int, pos int64, n int) int {
	got, e := k.pread(fd, pos, n, unix.RWF_NOWAIT)
	switch e {
	case 0:
		return got
	case unix.EAGAIN, unix.EINTR:
		return 0
	}
	return n
}

// pread reads into memory that nobody looks at.
func (k *looker) pread(fd int, pos int64, n int, flags int) (int, unix.Errno) {
	if k.touch == nil {
		k.touch = make([]byte, touchBytes)
	}
	k.iov[0].Base = &k.touch[0]
	k.iov[0].SetLen(min(n, touchBytes))
	return preadv2(fd, k.iov[:], pos, flags)
}

// readAhead is the work of a worker for a connection. It is the worker's from Server.readAhead until its Run, and so is the reply that the
// connection sends first: nobody touches either meanwhile, though the connection may close.
type readAhead struct {
	conn   *Conn
	reply  *Reply
	busy   bool // with a worker
	cold   bool // a worker goes before the connection
	calm   int  // looks without a miss in a row
	gones  int  // times in a row that nothing of what was read could be sent
	missed bool // the last one found something missing
	timed  bool // the connection's, as of when the work was given away
	nanos  int64
}

// aheads are the workers that read ahead, at most Config.ReadAheadThreads. Those that have nothing to do end.
type aheads struct {
	mu      sync.Mutex // guards the rest
	running int
	waiting []*readAhead
}

// sendable is how much of p, an old slice that c sends next, may be sent now: n bytes at most, which may be more than p has left. 0: a worker
// reads it first, and the loop has the connection send again when that is done.
func (l *Loop) sendable(c *Conn, p *Part, n int) int {
	a := c.ahead
	switch {
	case a != nil && a.busy:
		return 0
	case p.Pos < p.warm && l.now-c.lookedAt < lookMs:
		n = min(n, p.Len, int(p.warm-p.Pos))
		if a == nil || !a.cold || a.gones >= gonesMax || l.look.resident(p.FD, p.Pos, n) {
			if a != nil {
				a.gones = 0
			}
			return n
		}
		l.stats.coldGones.Add(1)
		a.gones++
	case a == nil || !a.cold:
		if have := l.look.cached(p.FD, p.Pos, min(p.Len, lookBytes)); have > 0 {
			p.warm, c.lookedAt = p.Pos+int64(have), l.now
			return min(n, have)
		}
		if a == nil {
			a = &readAhead{conn: c}
			c.ahead = a
		}
		a.cold, a.calm, a.gones = true, 0, 0
	}
	a.reply, a.busy, a.timed = c.head, true, c.timed
	l.stats.coldReads.Add(1)
	l.server.readAhead(a)
	return 0
}

// waiting tells whether a worker has the reply that c sends next.
func (c *Conn) waiting() bool { return c.ahead != nil && c.ahead.busy }

// readAhead gives a to a worker.
func (s *Server) readAhead(a *readAhead) {
	s.aheads.mu.Lock()
	defer s.aheads.mu.Unlock()
	s.aheads.waiting = append(s.aheads.waiting, a)
	if s.aheads.running < s.cfg.ReadAheadThreads {
		s.aheads.running++
		go s.runAheads()
	}
}

// nullDevice is a descriptor of it, for the life of the process; 0 where there is none.
var nullDevice = sync.OnceValue(func() int {
	fd, err := unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	return fd
})

// lookers are those of workers that ended.
var lookers sync.Pool

// runAheads is a worker.
func (s *Server) runAheads() {
	k, ok := lookers.Get().(*looker)
	if !ok {
		k = new(looker)
	}
	defer lookers.Put(k)
	k.way, k.sink = s.lookWay, nullDevice()
	for {
		s.aheads.mu.Lock()
		if len(s.aheads.waiting) == 0 {
			s.aheads.waiting = nil
			s.aheads.running--
			s.aheads.mu.Unlock()
			return
		}
		a := s.aheads.waiting[0]
		s.aheads.waiting[0] = nil
		s.aheads.waiting = s.aheads.waiting[1:]
		s.aheads.mu.Unlock()
		if a.timed {
			began := time.Now()
			a.read(k, s.cfg.ReadAheadBytes)
			a.nanos = int64(time.Since(began))
		} else {
			a.read(k, s.cfg.ReadAheadBytes)
		}
		a.conn.loop.Post(a)
	}
}

// eachOld calls f for the pieces of the next lookBytes that are old.
func (a *readAhead) eachOld(f func(p *Part, n int)) {
	r := a.reply
	for i, left := r.part, lookBytes; i < len(r.Parts) && left > 0; i++ {
		if p := &r.Parts[i]; p.Old && p.Len > 0 {
			n := min(p.Len, left)
			left -= n
			f(p, n)
		}
	}
}

// read brings the next lookBytes of the reply into the page cache, and has the kernel begin with so many more, which the peer will want
// next. All of it is asked for before anything is waited for.
func (a *readAhead) read(k *looker, more int) {
	a.missed = false
	fetch := func(fd int, pos int64, n int) {
		if !k.resident(fd, pos, n) {
			a.missed = true
			// See await.
			_ = unix.Fadvise(fd, pos, int64(n), unix.FADV_WILLNEED)
		}
	}
	var last *Part
	a.eachOld(func(p *Part, n int) {
		fetch(p.FD, p.Pos, n)
		last = p
	})
	var st unix.Stat_t
	if from := last.Pos + int64(min(last.Len, lookBytes)); more > 0 && unix.Fstat(last.FD, &st) == nil && st.Size > from {
		fetch(last.FD, from, int(min(int64(more), st.Size-from)))
	}
	a.eachOld(func(p *Part, n int) { k.await(p.FD, p.Pos, n) })
}

// await waits until [pos, pos+n) of a file is in the page cache. What fails here fails again when it is sent, and is told there.
func (k *looker) await(fd int, pos int64, n int) {
	for end := pos + int64(n); pos < end; {
		var got int
		e := unix.ENOSYS
		if k.sink > 0 {
			at := pos
			got, e = sendfile(k.sink, fd, &at, int(end-pos))
		}
		if e == unix.ENOSYS || e == unix.EINVAL {
			got, e = k.pread(fd, pos, int(end-pos), 0)
		}
		if got <= 0 && e != unix.EINTR {
			return
		}
		pos += int64(max(0, got))
	}
}

// Run implements Task: what was read may be sent.
func (a *readAhead) Run() {
	c := a.conn
	a.busy = false
	c.nanos, a.nanos = c.nanos+a.nanos, 0
	if c.closed {
		c.loop.recycle(a.reply)
		a.reply = nil
		return
	}
	a.eachOld(func(p *Part, n int) { p.warm = p.Pos + int64(n) })
	a.reply = nil
	if a.calm++; a.missed {
		a.calm = 0
	}
	a.cold = a.calm < calmLooks
	c.lookedAt = c.loop.now
	c.loop.markDirty(c)
}
