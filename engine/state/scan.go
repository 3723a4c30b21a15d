package state

import "bytes"

// Scan takes keys from the index in pages: small at first, for those who want the first few, then larger ones, whose values
// are read together where they lie close.
const (
	pageKeys    = 256
	pageKeysMax = 4096 // some 200 µs under the lock
	pageBytes   = 1 << 20
	// A page reads a stretch of a file at once if it is no longer than this many times the values wanted, and some.
	stretchRatio = 4
	stretchSlack = 64 << 10
)

// Scan calls fn in key order for every key with the prefix; an error of fn ends it and is returned. It sees every key that
// is there from beginning to end; of keys put or deleted meanwhile it may see the state before or after. fn may use the
// store. key and value are valid during the call and must not be modified. Values do not enter the cache. May block.
func (s *Store) Scan(prefix []byte, fn func(key, value []byte) error) error {
	pg := page{from: bytes.Clone(prefix), limit: pageKeys, files: map[uint32]*stretch{}}
	for more := true; more; {
		if err := s.fillPage(&pg, prefix); err != nil {
			return err
		}
		err := pg.each(fn)
		pg.release()
		if err != nil {
			return err
		}
		if more = pg.more; more {
			pg.from = append(append(pg.from[:0], pg.key(len(pg.places)-1)...), 0)
			pg.limit = min(4*pg.limit, pageKeysMax)
		}
	}
	return nil
}

// page is a run of the index.
type page struct {
	from   []byte
	limit  int // keys
	more   bool
	bytes  int // of the values
	keys   []byte
	ends   []int
	places []place
	files  map[uint32]*stretch
}

// stretch is the part of a file in which the values of a page lie, with a reference to the file.
type stretch struct {
	l      *logFile
	lo, hi int64
	want   int64
	buf    []byte // from lo to hi, if that was worth it
}

func (pg *page) key(i int) []byte {
	if i == 0 {
		return pg.keys[:pg.ends[0]]
	}
	return pg.keys[pg.ends[i-1]:pg.ends[i]]
}

func (pg *page) release() {
	for id, st := range pg.files {
		st.l.release()
		delete(pg.files, id)
	}
}

func (s *Store) fillPage(pg *page, prefix []byte) error {
	pg.keys, pg.ends, pg.places, pg.bytes, pg.more = pg.keys[:0], pg.ends[:0], pg.places[:0], 0, false
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return ErrClosed
	}
	s.index.ascend(pg.from, func(key []byte, p place) bool {
		if !bytes.HasPrefix(key, prefix) {
			return false
		}
		if pg.more = len(pg.places) == pg.limit || pg.bytes > pageBytes; pg.more {
			return false
		}
		pg.keys = append(pg.keys, key...)
		pg.ends = append(pg.ends, len(pg.keys))
		pg.places = append(pg.places, p)
		pg.bytes += int(p.size)
		st := pg.files[p.file]
		if st == nil {
			st = &stretch{l: s.files[p.file], lo: int64(p.off)}
			st.l.acquire()
			pg.files[p.file] = st
		}
		st.lo, st.hi = min(st.lo, int64(p.off)), max(st.hi, p.end())
		st.want += int64(p.size) + 4
		return true
	})
	return nil
}

// end is where the checksum of the value ends.
func (p place) end() int64 { return int64(p.off) + int64(p.size) + 4 }

func (pg *page) each(fn func(key, value []byte) error) error {
	for _, st := range pg.files {
		if n := st.hi - st.lo; len(pg.places) > 1 && n <= stretchRatio*st.want+stretchSlack {
			st.buf = make([]byte, n)
			if _, err := st.l.f.ReadAt(st.buf, st.lo); err != nil {
				st.buf = nil // one by one, to say which value it is
			}
		}
	}
	for i, p := range pg.places {
		st, key := pg.files[p.file], pg.key(i)
		var v []byte
		var err error
		if st.buf != nil {
			v, err = st.l.checkValue(key, p, st.buf[int64(p.off)-st.lo:p.end()-st.lo])
		} else {
			v, err = st.l.readValue(key, p)
		}
		if err == nil {
			err = fn(key, v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
