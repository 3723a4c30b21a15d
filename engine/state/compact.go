package state

import (
	"errors"
)

// wasteful reports whether sealed files hold so much garbage that rewriting pays: more than one file's worth, and more than
// everything alive.
func (s *Store) wasteful() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	active := s.active.Load()
	var live, sealed, sealedLive int64
	for _, l := range s.files {
		live += l.live
		if l.id < active.id { // the size of the others still changes
			sealed += l.size
			sealedLive += l.live
		}
	}
	return sealed-sealedLive > max(s.opts.FileBytes, live)
}

// startMaintenance runs compaction and checkpoint in the background unless they already run. Called with appendMu.
func (s *Store) startMaintenance() {
	if !s.busy.CompareAndSwap(false, true) {
		return
	}
	s.inBackground(func() {
		defer s.busy.Store(false)
		if err := s.maintenance(); err != nil && !errors.Is(err, ErrClosed) {
			s.appendMu.Lock()
			s.ckptDue = s.sinceCkpt + s.opts.CheckpointBytes/4 // not again at every append
			s.appendMu.Unlock()
			s.opts.OnError(err)
		}
	})
}

// inBackground runs f beside everything; Close waits for it. False: the store is closed.
func (s *Store) inBackground(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(f)
	return true
}

func (s *Store) maintenance() error {
	s.maintain.Lock()
	defer s.maintain.Unlock()
	if s.wasteful() {
		if err := s.compact(); err != nil {
			return err
		}
	}
	if err := s.usable(); err != nil {
		return err
	}
	return s.checkpoint()
}

// compact copies the live values of sealed files that are mostly garbage to the end of the log. The files themselves go
// with the next checkpoint, which no longer names them; until then a crash finds both copies, of which the later counts.
func (s *Store) compact() error {
	active := s.active.Load()
	var victims []*logFile
	s.mu.RLock()
	for _, l := range s.files {
		if l.id < active.id && l.live < l.size/2 {
			victims = append(victims, l)
		}
	}
	s.mu.RUnlock()
	for _, l := range victims {
		if err := s.move(l); err != nil {
			return err
		}
	}
	return nil
}

// moveBytes is how much is copied at a time, while writers wait.
const moveBytes = 64 << 10

// move copies the live values of one sealed file.
func (s *Store) move(l *logFile) error {
	w := newWindow(l.f, logHeader, l.size)
	var ops []op      // candidates, aliasing copies of their frames
	var offs []uint32 // where their values lie now
	pending := 0
	var b Batch
	flush := func() error {
		b.Reset()
		_, err := s.append(&b, func() {
			s.mu.RLock()
			defer s.mu.RUnlock()
			for i, o := range ops {
				if p, ok := s.index.get(o.key); ok && p.file == l.id && p.off == offs[i] {
					b.Put(o.key, o.value)
				}
			}
		})
		ops, offs, pending = ops[:0], offs[:0], 0
		return err
	}
	for {
		off := w.off
		frame, err := w.frameAt()
		if err != nil {
			return err
		}
		if frame == nil {
			if off < l.size {
				return &CorruptError{File: l.name, Offset: off, Err: errFrameCut}
			}
			return flush()
		}
		w.skip(len(frame))
		if pending > 0 && pending+len(frame) > 2*moveBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		frame = append([]byte(nil), frame...)
		for at := frameHeader; at < len(frame); {
			o, ok := nextOp(frame, at)
			if !ok {
				return &CorruptError{File: l.name, Offset: off, Err: errFrameOps}
			}
			at += o.size
			if o.kind == opPut {
				ops, offs = append(ops, o), append(offs, uint32(off)+uint32(o.off))
				pending += o.size
			}
		}
		if pending >= moveBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
}
