package logtool

import (
	"encoding/binary"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"kaas/engine/producer"
)

// Sizes of index entries (Kafka's formats).
const (
	offsetWidth = 8  // int32 relative offset, int32 position
	timeWidth   = 12 // int64 timestamp, int32 relative offset
	txnWidth    = 34 // int16 version, int64 producer id, first offset, last offset, last stable offset
)

type offsetEntry struct{ offset, position int64 }

type timeEntry struct{ timestamp, offset int64 }

type txnEntry struct{ producerID, first, last, lastStable int64 }

type epochEntry struct {
	epoch int32
	start int64
}

type producerEntry struct {
	id    int64
	state producer.Entry
	last  *producer.Batch // nil: no batch is remembered
}

// entries cuts an index file into entries. Entries of zeros at the end are space that a broker allocated ahead: spare says
// how many bytes that is. tail is what is left at the end and is no whole entry.
func entries(b []byte, width int) (list [][]byte, spare, tail int) {
	used := len(b)
	for used > 0 && b[used-1] == 0 {
		used--
	}
	n := (used + width - 1) / width
	if n*width > len(b) {
		n, tail = len(b)/width, len(b)%width
	}
	for i := range n {
		list = append(list, b[i*width:(i+1)*width])
	}
	return list, len(b) - n*width - tail, tail
}

func be32(b []byte) int64 { return int64(binary.BigEndian.Uint32(b)) }
func be64(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }

// offsetEntries reads an offset index. What it finds wrong is told by report; all entries are returned.
func offsetEntries(name string, base int64, b []byte, report func(*Problem)) (list []offsetEntry, spare int) {
	raw, spare, tail := entries(b, offsetWidth)
	for i, e := range raw {
		x := offsetEntry{base + be32(e), be32(e[4:])}
		if i > 0 && (x.offset <= list[i-1].offset || x.position <= list[i-1].position) {
			report(&Problem{name, int64(i * offsetWidth), fmt.Sprintf("index entry goes back: offset %d at %d after offset %d at %d", x.offset, x.position, list[i-1].offset, list[i-1].position)})
		}
		list = append(list, x)
	}
	reportTail(name, len(b), tail, report)
	return list, spare
}

// timeEntries reads a time index as offsetEntries does.
func timeEntries(name string, base int64, b []byte, report func(*Problem)) (list []timeEntry, spare int) {
	raw, spare, tail := entries(b, timeWidth)
	for i, e := range raw {
		x := timeEntry{be64(e), base + be32(e[8:])}
		if i > 0 && (x.timestamp <= list[i-1].timestamp || x.offset < list[i-1].offset) {
			report(&Problem{name, int64(i * timeWidth), fmt.Sprintf("time index entry goes back: %d at offset %d after %d at offset %d", x.timestamp, x.offset, list[i-1].timestamp, list[i-1].offset)})
		}
		list = append(list, x)
	}
	reportTail(name, len(b), tail, report)
	return list, spare
}

// txnEntries reads a transaction index.
func txnEntries(name string, b []byte, report func(*Problem)) (list []txnEntry) {
	for at := 0; len(b)-at >= txnWidth; at += txnWidth {
		e := b[at:]
		if v := binary.BigEndian.Uint16(e); v != 0 {
			report(&Problem{name, int64(at), fmt.Sprintf("transaction index entry of version %d", v)})
			return list
		}
		x := txnEntry{be64(e[2:]), be64(e[10:]), be64(e[18:]), be64(e[26:])}
		if x.first > x.last || x.producerID < 0 {
			report(&Problem{name, int64(at), fmt.Sprintf("transaction of producer %d ends at %d before it begins at %d", x.producerID, x.last, x.first)})
		}
		if n := len(list); n > 0 && x.last <= list[n-1].last {
			report(&Problem{name, int64(at), fmt.Sprintf("transaction index goes back: last offset %d after %d", x.last, list[n-1].last)})
		}
		list = append(list, x)
	}
	reportTail(name, len(b), len(b)%txnWidth, report)
	return list
}

func reportTail(name string, size, tail int, report func(*Problem)) {
	if tail != 0 {
		report(&Problem{name, int64(size - tail), fmt.Sprintf("the file ends inside an entry: %d bytes are left", tail)})
	}
}

// producers reads a producer snapshot, in order of producer ids.
func producers(name string, b []byte) ([]producerEntry, *Problem) {
	var s producer.State
	if err := s.Load(b, 0); err != nil {
		return nil, &Problem{name, 0, err.Error()}
	}
	var list []producerEntry
	s.Each(func(id int64, e *producer.Entry, last *producer.Batch) {
		p := producerEntry{id: id, state: *e}
		if last != nil {
			b := *last
			p.last = &b
		}
		list = append(list, p)
	})
	sort.Slice(list, func(i, j int) bool { return list[i].id < list[j].id })
	return list, nil
}

// epochEntries reads a leader-epoch-checkpoint: version 0, count, then "epoch offset" lines.
func epochEntries(name string, b []byte) ([]epochEntry, *Problem) {
	at := int64(0)
	rest := string(b)
	line := func() string {
		s, more, _ := strings.Cut(rest, "\n")
		at, rest = at+int64(len(s))+1, more
		return strings.TrimSpace(s)
	}
	bad := func(where int64, format string, args ...any) *Problem {
		return &Problem{name, where, fmt.Sprintf(format, args...)}
	}
	if v := line(); v != "0" {
		return nil, bad(0, "version %q, want 0", v)
	}
	here := at
	count, err := strconv.Atoi(line())
	if err != nil || count < 0 {
		return nil, bad(here, "no count of entries")
	}
	var list []epochEntry
	for rest != "" {
		here = at
		f := strings.Fields(line())
		if len(f) != 2 {
			return list, bad(here, "want an epoch and an offset")
		}
		epoch, err1 := strconv.ParseInt(f[0], 10, 32)
		start, err2 := strconv.ParseInt(f[1], 10, 64)
		if err1 != nil || err2 != nil {
			return list, bad(here, "want an epoch and an offset")
		}
		e := epochEntry{int32(epoch), start}
		if n := len(list); n > 0 && (e.epoch <= list[n-1].epoch || e.start < list[n-1].start) {
			return list, bad(here, "entry goes back: epoch %d at %d after epoch %d at %d", e.epoch, e.start, list[n-1].epoch, list[n-1].start)
		}
		list = append(list, e)
	}
	if len(list) != count {
		return list, bad(at, "%d entries, the count says %d", len(list), count)
	}
	return list, nil
}
