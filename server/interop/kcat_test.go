//go:build interop

package interop

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// kcatRecords makes what kcat can write from lines: text without line ends, the same headers for a whole partition, the
// client's own timestamps. Every tenth record has no key, another tenth an empty value.
func kcatRecords(n int, partitions int32) []*kgo.Record {
	records := make([]*kgo.Record, n)
	for i := range records {
		p := int32(i) % partitions
		r := &kgo.Record{
			Partition: p,
			Key:       fmt.Appendf(nil, "key-%d", i),
			Value:     fmt.Appendf(nil, "value %d %s", i, strings.Repeat("äx ", i%30)),
			Headers: []kgo.RecordHeader{
				{Key: "partition", Value: fmt.Append(nil, p)}, {Key: "empty", Value: []byte{}}, {Key: "null"}, {Key: "empty", Value: []byte("ü")},
			},
		}
		switch i / int(partitions) % 10 {
		case 0:
			r.Key = nil
		case 1:
			r.Value = []byte{}
		}
		records[i] = r
	}
	return records
}

const kcatKeyEnd = "\x1f" // between key and value

// produceKcat runs kcat once for each partition: a run has one partition and one set of headers.
func produceKcat(t *testing.T, addr, topic, codec string, records []*kgo.Record) {
	for p := range int32(exchangePartitions) {
		var in bytes.Buffer
		var first *kgo.Record
		for _, r := range records {
			if r.Partition != p {
				continue
			}
			if first == nil {
				first = r
			}
			if r.Key != nil {
				in.Write(r.Key)
				in.WriteString(kcatKeyEnd)
			}
			in.Write(r.Value)
			in.WriteByte('\n')
		}
		args := []string{"-b", addr, "-P", "-t", topic, "-p", strconv.Itoa(int(p)), "-z", codec, "-K", kcatKeyEnd,
			"-X", "linger.ms=200", "-X", "batch.num.messages=500"}
		for _, h := range first.Headers {
			text := h.Key
			if h.Value != nil {
				text += "=" + string(h.Value)
			}
			args = append(args, "-H", text)
		}
		program(t, in.Bytes(), nil, "kcat", args...)
	}
}

// kcatSeen puts all headers into one, in the form that kcat prints: it does not tell "NULL" from null, and a value ends at
// its first zero byte.
func kcatSeen(r *kgo.Record) *kgo.Record {
	list := make([]string, len(r.Headers))
	for i, h := range r.Headers {
		value, _, _ := strings.Cut(string(h.Value), "\x00")
		if h.Value == nil {
			value = "NULL"
		}
		list[i] = h.Key + "=" + value
	}
	return &kgo.Record{Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value,
		Headers: []kgo.RecordHeader{{Key: "printed", Value: []byte(strings.Join(list, ","))}}}
}

// readKcat has kcat print every record with the lengths first, so that keys and values may be any bytes.
func readKcat(t *testing.T, addr, topic string) map[int32][]*kgo.Record {
	got := map[int32][]*kgo.Record{}
	for p := range exchangePartitions {
		out := program(t, nil, nil, "kcat", "-b", addr, "-C", "-t", topic, "-p", strconv.Itoa(p), "-o", "beginning", "-e", "-q",
			"-X", "fetch.wait.max.ms=20", "-f", `%p %o %T %K %S\n%k%s%h\n`)
		for len(out) > 0 {
			head, rest, _ := bytes.Cut(out, []byte("\n"))
			var part int32
			var offset, ms int64
			var keyLen, valueLen int
			if _, err := fmt.Sscan(string(head), &part, &offset, &ms, &keyLen, &valueLen); err != nil || max(keyLen, 0)+max(valueLen, 0) > len(rest) {
				t.Fatalf("partition %d after %d records: kcat prints %.80q: %v", p, len(got[part]), head, err)
			}
			r := &kgo.Record{Partition: part, Offset: offset, Timestamp: time.UnixMilli(ms)}
			r.Key, rest = take(rest, keyLen)
			r.Value, rest = take(rest, valueLen)
			var headers []byte
			headers, out, _ = bytes.Cut(rest, []byte("\n"))
			r.Headers = []kgo.RecordHeader{{Key: "printed", Value: headers}}
			got[part] = append(got[part], r)
		}
	}
	return got
}

// take cuts n bytes off the front of b; -1 is null.
func take(b []byte, n int) (front, rest []byte) {
	if n < 0 {
		return nil, b
	}
	return b[:n:n], b[n:]
}
