package logtool

import (
	"errors"
	"fmt"
	"math"
	"os"

	"kaas/codec/batch"
	"kaas/engine/segment"
)

// indexCheck compares the indexes of one segment with its batches as they go by: both are in the order of offsets. What is
// left of an entry list is yet to come.
type indexCheck struct {
	v *sink

	offsetPath string
	offsets    []offsetEntry
	offsetAt   int64 // position in the file of the first that is left
	begins     bool  // a batch that went by begins where that one says

	timePath string
	times    []timeEntry
	timeAt   int64
	greatest int64 // timestamp of the batches so far

	txnPath string
	txns    []txnEntry
	allTxns []txnEntry
	txnAt   int64
}

// openIndexes reads the indexes of the segment of base. A log without them is sound: they are built from it when needed.
func (p *partition) openIndexes(base int64) (*indexCheck, error) {
	x := &indexCheck{v: p.sink, greatest: math.MinInt64, offsetPath: p.path(base, segment.IndexSuffix),
		timePath: p.path(base, segment.TimeIndexSuffix), txnPath: p.path(base, segment.TxnIndexSuffix)}
	read := func(path, suffix string) ([]byte, error) {
		if !p.files[suffix][base] {
			return nil, nil
		}
		return os.ReadFile(path)
	}
	b, err1 := read(x.offsetPath, segment.IndexSuffix)
	x.offsets, _ = offsetEntries(x.offsetPath, base, b, p.tell)
	b, err2 := read(x.timePath, segment.TimeIndexSuffix)
	x.times, _ = timeEntries(x.timePath, base, b, p.tell)
	b, err3 := read(x.txnPath, segment.TxnIndexSuffix)
	x.txns = txnEntries(x.txnPath, b, p.tell)
	x.allTxns = x.txns
	return x, errors.Join(err1, err2, err3)
}

// batch takes the next batch of the segment. sound: its CRC matches.
func (x *indexCheck) batch(v batch.View, pos int64, sound bool) {
	base, last := v.BaseOffset(), v.LastOffset()
	where := func() string { return fmt.Sprintf("the batch of offsets %s is at byte %d", span(base, last), pos) }
	for len(x.offsets) > 0 {
		e := x.offsets[0]
		x.begins = x.begins || e.position == pos
		if e.offset > last {
			break
		}
		switch {
		case e.position == pos && e.offset >= base:
		case x.begins && e.offset >= base:
			// A replica of Apache Kafka writes one entry for several batches that came in one fetch.
			x.v.note(x.offsetPath, fmt.Sprintf("entry for offset %d points to byte %d, before the batch at byte %d", e.offset, e.position, pos))
		default:
			x.badOffset(e, where())
		}
		x.nextOffset()
	}
	for len(x.times) > 0 && x.times[0].offset <= last {
		e := x.times[0]
		switch {
		case e.offset < base:
			x.badTime(e, where())
		case e.timestamp != v.MaxTimestamp():
			x.badTime(e, fmt.Sprintf("its batch has %d", v.MaxTimestamp()))
		case x.greatest > e.timestamp:
			x.badTime(e, fmt.Sprintf("a batch before it has %d", x.greatest))
		}
		x.nextTime()
	}
	x.greatest = max(x.greatest, v.MaxTimestamp())
	for len(x.txns) > 0 && x.txns[0].last <= last {
		m, ok := batch.ReadMarker(v)
		if e := x.txns[0]; !ok || !sound || m.Type != batch.ControlAbort || m.ProducerID != e.producerID || last != e.last {
			x.badTxn(e)
		}
		x.nextTxn()
	}
}

// end tells of entries beyond the last batch.
func (x *indexCheck) end() {
	const ends = "the segment ends before"
	for ; len(x.offsets) > 0; x.nextOffset() {
		x.badOffset(x.offsets[0], ends)
	}
	for ; len(x.times) > 0; x.nextTime() {
		x.badTime(x.times[0], ends)
	}
	for ; len(x.txns) > 0; x.nextTxn() {
		x.badTxn(x.txns[0])
	}
}

func (x *indexCheck) nextOffset() {
	x.offsets, x.offsetAt, x.begins = x.offsets[1:], x.offsetAt+offsetWidth, false
}
func (x *indexCheck) nextTime() { x.times, x.timeAt = x.times[1:], x.timeAt+timeWidth }
func (x *indexCheck) nextTxn()  { x.txns, x.txnAt = x.txns[1:], x.txnAt+txnWidth }

func (x *indexCheck) badOffset(e offsetEntry, why string) {
	x.v.tell(&Problem{x.offsetPath, x.offsetAt, fmt.Sprintf("index entry says that offset %d is at byte %d; %s", e.offset, e.position, why)})
}

func (x *indexCheck) badTime(e timeEntry, why string) {
	x.v.tell(&Problem{x.timePath, x.timeAt, fmt.Sprintf("time index entry says that %d is the greatest timestamp up to offset %d; %s", e.timestamp, e.offset, why)})
}

func (x *indexCheck) badTxn(e txnEntry) {
	x.v.tell(&Problem{x.txnPath, x.txnAt, fmt.Sprintf("no abort marker of producer %d at offset %d", e.producerID, e.last)})
}
