package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
)

// keyed is a record of the model's compacted logs: on disk uint16 offset delta, key, 1 for a tombstone, uint16 length of the value, value.
type keyed struct {
	delta     int
	key       byte
	tombstone bool
	value     []byte
}

const keyedHead = 6

func randomKeyed(rng *rand.Rand) []keyed {
	recs := make([]keyed, 1+rng.IntN(4))
	for i := range recs {
		recs[i] = keyed{delta: i, key: byte(rng.IntN(6)), tombstone: rng.IntN(5) == 0}
		if !recs[i].tombstone {
			recs[i].value = bytes.Repeat([]byte{byte(rng.Uint32())}, 10+rng.IntN(80))
		}
	}
	return recs
}

func appendKeyed(b []byte, recs []keyed) []byte {
	for _, r := range recs {
		t := byte(0)
		if r.tombstone {
			t = 1
		}
		b = append(binary.BigEndian.AppendUint16(b, uint16(r.delta)), r.key, t)
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(r.value))), r.value...)
	}
	return b
}

func parseKeyed(b []byte) (recs []keyed) {
	for b = b[61:]; len(b) >= keyedHead; {
		n := keyedHead + int(binary.BigEndian.Uint16(b[4:]))
		recs = append(recs, keyed{int(binary.BigEndian.Uint16(b)), b[2], b[3] == 1, b[keyedHead:n]})
		b = b[n:]
	}
	return recs
}

// keyedFormat is the RecordFormat of such batches.
type keyedFormat struct{}

func (keyedFormat) Keys(b []byte, f func(offset int64, key []byte, tombstone bool) bool) error {
	base := int64(binary.BigEndian.Uint64(b))
	for _, r := range parseKeyed(b) {
		if !f(base+int64(r.delta), []byte{r.key}, r.tombstone) {
			break
		}
	}
	return nil
}

func (keyedFormat) Rebuild(dst, b []byte, keep func(int32) bool, horizonMs int64) ([]byte, error) {
	be, at := binary.BigEndian, len(dst)
	dst = append(dst, b[:61]...)
	count := uint32(0)
	if _, info, _ := (testFormat{}).Peek(b); info.Control {
		if info.Count > 0 && keep(0) {
			dst, count = append(dst, b[61:]...), 1
		}
	} else {
		for i, r := range parseKeyed(b) {
			if keep(int32(i)) {
				dst, count = appendKeyed(dst, []keyed{r}), count+1
			}
		}
	}
	out := dst[at:]
	be.PutUint32(out[8:], uint32(len(out)-12))
	be.PutUint32(out[57:], count)
	if horizonMs >= 0 {
		be.PutUint16(out[21:], be.Uint16(out[21:])|64)
		be.PutUint64(out[27:], uint64(horizonMs))
	}
	be.PutUint32(out[17:], crc32.Checksum(out[21:], crcTable))
	return dst, nil
}

// compact lets the cleaner run until nothing is due.
func (w *world) compact() {
	if w.rng.IntN(2) == 0 {
		w.update(func() { w.now = w.now.Add(3e9) })
	}
	if w.rng.IntN(2) == 0 { // otherwise segments may not be sealed yet
		w.settle()
	}
	n := w.e.Clean()
	w.note("compacted %d times", n)
	w.cleans.Add(int64(n))
	for i, l := range w.logs {
		if l != nil {
			w.offline(l, w.model.logs[i])
		}
	}
}

// read returns the batches of a log from an offset on, each checked by itself.
func (c *checker) read(l *Log, offset int64) (out []mbatch, err error) {
	for {
		s, err := l.Read(offset, 1<<20, true, ReadUncommitted)
		if err != nil || s.Len == 0 {
			return out, err
		}
		b := make([]byte, s.Len)
		_, err = s.Ref.File().ReadAt(b, s.Pos)
		s.Ref.Release()
		for err == nil && len(b) > 0 {
			var size int
			var info BatchInfo
			if size, info, err = (testFormat{}).Next(b); err == nil {
				out = append(out, mbatch{b[:size], info})
				b, offset = b[size:], info.LastOffset()+1
			}
		}
		if err != nil {
			return out, fmt.Errorf("batch at %d: %w", offset, err)
		}
	}
}

// compacted compares a log that may be compacted with what it would hold if it were not: of each key the last record is there, or it was a
// tombstone and none before it came back; all that is there was written, at its offset; the segment in use has everything; what is aborted
// is told.
func (c *checker) compacted(l *Log, w *want, exact bool) error {
	got, err := c.read(l, w.start)
	if err != nil {
		return err
	}
	written := map[int64]mbatch{}
	for _, b := range w.batches {
		written[b.info.BaseOffset] = b
	}
	told := l.AbortedIn(nil, w.start, w.end)
	found, before := map[int64]bool{}, int64(-1)
	for _, b := range got {
		orig := written[b.info.BaseOffset]
		if err := sameBatch(&b, &orig); err != nil || b.info.BaseOffset <= before {
			return fmt.Errorf("batch %d after %d: %w", b.info.BaseOffset, before, err)
		}
		before = b.info.LastOffset()
		found[-1-b.info.BaseOffset] = true
		if b.info.Control {
			continue
		}
		if is, want := isAborted(told, &b.info), isAborted(w.aborted, &b.info); exact && b.info.Count > 0 && is != want {
			return fmt.Errorf("batch %d is told as aborted %v, want %v", b.info.BaseOffset, is, want)
		}
		for _, r := range parseKeyed(b.data) {
			found[b.info.BaseOffset+int64(r.delta)] = true
		}
	}
	if err := lastOfKeys(w, found); exact && err != nil {
		return err
	}
	segs := l.Segments()
	for base := range written {
		if len(segs) > 0 && base >= segs[len(segs)-1].BaseOffset && base >= w.start && !found[-1-base] {
			return fmt.Errorf("batch %d of the segment in use is gone", base)
		}
	}
	return nil
}

// sameBatch compares what is left of a batch with what was written.
func sameBatch(b, orig *mbatch) error {
	if orig.data == nil {
		return fmt.Errorf("nobody wrote it")
	}
	x, y := b.info, orig.info
	if x.Size == y.Size && bytes.Equal(b.data, orig.data) {
		return nil
	}
	x.Size, x.Count, x.BaseTimestamp, x.DeleteHorizon = y.Size, y.Count, y.BaseTimestamp, false
	if y.BaseOffset = x.BaseOffset; x != y {
		return fmt.Errorf("%+v was %+v", x, y)
	}
	if x.Control {
		return nil
	}
	all := parseKeyed(orig.data)
	for _, r := range parseKeyed(b.data) {
		if r.delta >= len(all) || all[r.delta].key != r.key || all[r.delta].tombstone != r.tombstone || !bytes.Equal(all[r.delta].value, r.value) {
			return fmt.Errorf("record %d is not what was written", r.delta)
		}
	}
	return nil
}

func isAborted(list []AbortedTxn, b *BatchInfo) bool {
	return b.Transactional && slices.ContainsFunc(list, func(a AbortedTxn) bool {
		return a.ProducerID == b.ProducerID && a.FirstOffset <= b.BaseOffset && b.BaseOffset < a.LastOffset
	})
}

func lastOfKeys(w *want, found map[int64]bool) error {
	type place struct {
		offset    int64
		tombstone bool
	}
	all := map[byte][]place{}
	for _, b := range w.batches {
		if b.info.Control || isAborted(w.aborted, &b.info) {
			continue
		}
		for _, r := range parseKeyed(b.data) {
			if o := b.info.BaseOffset + int64(r.delta); o >= w.start {
				all[r.key] = append(all[r.key], place{o, r.tombstone})
			}
		}
	}
	for key, list := range all {
		last := list[len(list)-1]
		if found[last.offset] {
			continue
		}
		if !last.tombstone {
			return fmt.Errorf("the last record of key %d, at %d, is gone", key, last.offset)
		}
		for _, p := range list[:len(list)-1] {
			if found[p.offset] {
				return fmt.Errorf("key %d is back at %d, its tombstone at %d is gone", key, p.offset, last.offset)
			}
		}
	}
	return nil
}
