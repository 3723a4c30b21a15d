package segment

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"sync"

	"kaas/engine/vfs"
)

// AbortedTxn is an entry of the transaction index: offsets [FirstOffset, LastOffset] of a producer, the last being that of
// the marker; LastStable is the last stable offset when it was written.
type AbortedTxn struct {
	ProducerID, FirstOffset, LastOffset, LastStable int64
}

const (
	txnEntry    = 34 // int16 version 0, then four int64
	txnIndexMax = 1 << 30
)

// txnIndex holds the aborted transactions whose marker is in the segment. They go to the file when the segment is sealed
// or closed; after a crash they are found again by the scan.
type txnIndex struct {
	mu    sync.Mutex // guards all
	list  []AbortedTxn
	saved int // of list, in the file
}

// AddAborted enters an aborted transaction. Writer.
func (s *Segment) AddAborted(a AbortedTxn) {
	s.txns.mu.Lock()
	s.txns.list = append(s.txns.list, a)
	s.txns.mu.Unlock()
}

// Aborted appends to out the transactions that overlap [from, to), and says whether no later segment need be asked.
func (s *Segment) Aborted(out []AbortedTxn, from, to int64) ([]AbortedTxn, bool) {
	s.txns.mu.Lock()
	defer s.txns.mu.Unlock()
	for _, a := range s.txns.list {
		if a.LastOffset >= from && a.FirstOffset < to {
			out = append(out, a)
		}
		if a.LastStable >= to {
			return out, true
		}
	}
	return out, false
}

func (s *Segment) resetAborted() {
	s.txns.mu.Lock()
	s.txns.list, s.txns.saved = nil, -1 // a file that is there is of before
	s.txns.mu.Unlock()
}

// ErrTxnIndex says that a transaction index does not fit its segment; only a scan tells the aborted transactions then.
var ErrTxnIndex = errors.New("segment: transaction index does not fit the log")

// load reads the file of a segment with the offsets up to next. A missing one means that there are no aborted transactions, as in Kafka.
func (x *txnIndex) load(s *Segment, next int64) error {
	b, err := vfs.ReadFile(s.files.FS, s.path(TxnIndexSuffix), txnIndexMax)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list = nil
	last := s.base - 1
	for ; len(b) >= txnEntry; b = b[txnEntry:] {
		v := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[2+8*i:])) }
		a := AbortedTxn{ProducerID: v(0), FirstOffset: v(1), LastOffset: v(2), LastStable: v(3)}
		if b[0] != 0 || b[1] != 0 || a.FirstOffset < 0 || a.FirstOffset > a.LastOffset || a.LastOffset <= last || a.LastOffset >= next || a.LastStable > a.LastOffset+1 {
			break
		}
		last = a.LastOffset
		x.list = append(x.list, a)
	}
	if len(b) > 0 {
		x.list = nil
		return ErrTxnIndex
	}
	x.saved = len(x.list)
	return nil
}

// flush writes the whole file if it lacks entries; a segment without aborted transactions has none. With later it is written in place and not
// synced: the segment is one that a start scans until a sync of the whole file system has come.
func (x *txnIndex) flush(s *Segment, later bool) error {
	x.mu.Lock()
	list, saved := x.list, x.saved
	x.mu.Unlock()
	if s.files.memory || len(list) == saved {
		return nil
	}
	var err error
	switch {
	case len(list) > 0 && later:
		err = write(s.files.FS, s.path(TxnIndexSuffix), encodeAborted(list), false)
	case len(list) > 0:
		err = vfs.WriteFile(s.files.FS, s.dir, FileName(s.base, TxnIndexSuffix), encodeAborted(list))
	default:
		if err = s.files.FS.Remove(s.path(TxnIndexSuffix)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.saved = len(list)
	x.mu.Unlock()
	return nil
}

// stageTo writes the file of a staged segment, an empty one if there are no aborted transactions.
func (x *txnIndex) stageTo(s *Segment) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s.files.memory {
		return nil
	}
	err := write(s.files.FS, s.path(TxnIndexSuffix), encodeAborted(x.list), true)
	if err == nil {
		x.saved = len(x.list)
	}
	return err
}

func encodeAborted(list []AbortedTxn) (b []byte) {
	for _, a := range list {
		b = binary.BigEndian.AppendUint16(b, 0)
		for _, v := range []int64{a.ProducerID, a.FirstOffset, a.LastOffset, a.LastStable} {
			b = binary.BigEndian.AppendUint64(b, uint64(v))
		}
	}
	return b
}
