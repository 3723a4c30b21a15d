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
// missing any more, it looks for itself again.
//
// Tried and lost: looking by preadv2(RWF_NOWAIT) of all that is sent, which knows what is on its way, but copies it: 6 µs for
// each 64 KiB against 1 µs for cachestat and one byte. It is what kernels without cachestat (before 6.5) get.

const (
	lookBytes  = 1 << 20 // looked at, and read by a worker, at a time
	lookMs     = 1000    // after so long a look is not trusted any more: the peer was slow
	touchBytes = 64 << 10
	calmLooks  = 2 // looks without a miss after which a connection looks for itself again
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

// waitsForDisk tells whether c must not send its next piece, the old slice p, yet: then a worker reads it, and the loop has the connection
// send again when that is done.
func (l *Loop) waitsForDisk(c *Conn, p *Part) bool {
	a := c.ahead
	switch {
	case a != nil && a.busy:
		return true
	case p.Pos < p.warm && l.now-c.lookedAt < lookMs:
		return false
	case a == nil || !a.cold:
		if n := l.look.cached(p.FD, p.Pos, min(p.Len, lookBytes)); n > 0 {
			p.warm, c.lookedAt = p.Pos+int64(n), l.now
			return false
		}
		if a == nil {
			a = &readAhead{conn: c}
			c.ahead = a
		}
		a.cold, a.calm = true, 0
	}
	a.reply, a.busy, a.timed = c.head, true, c.timed
	l.stats.coldReads.Add(1)
	l.server.readAhead(a)
	return true
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

// lookers are those of workers that ended.
var lookers sync.Pool

// runAheads is a worker.
func (s *Server) runAheads() {
	k, ok := lookers.Get().(*looker)
	if !ok {
		k = new(looker)
	}
	defer lookers.Put(k)
	k.way = s.lookWay
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
			// What fails here fails again when it is sent, and is told there.
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
	a.eachOld(func(p *Part, n int) {
		for at := 0; at < n; {
			got, e := k.pread(p.FD, p.Pos+int64(at), n-at, 0)
			if got <= 0 && e != unix.EINTR {
				break
			}
			at += max(0, got)
		}
	})
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
