package transcripts

// Record batches and old message sets between bytes and a small description.

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func zz(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

func zzBytes(b []byte, v any, path string) []byte {
	if v == nil {
		return zz(b, -1)
	}
	x := toBytes(v, path)
	b = zz(b, int64(len(x)))
	return append(b, x...)
}

func getInt(o *object, k string, def int64) int64 {
	if v, ok := o.V[k]; ok {
		return toInt(v, k)
	}
	return def
}

// describeToBytes turns {"batches":[...]}, {"messages":[...]} or {"hex":"..."} into bytes.
func describeToBytes(o *object, s *session) (out []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("records: %v", r)
		}
	}()
	for _, k := range o.K {
		switch k {
		case "hex":
			b, err := hex.DecodeString(o.V[k].(string))
			if err != nil {
				return nil, err
			}
			out = append(out, b...)
		case "batches":
			for _, x := range o.V[k].([]any) {
				out = append(out, encodeBatch(x.(*object))...)
			}
		case "messages":
			for _, x := range o.V[k].([]any) {
				out = append(out, encodeMessageV01(x.(*object))...)
			}
		case "scram":
			return s.scram.clientMessage(o.V[k].(*object))
		case "plain":
			a := o.V[k].([]any)
			return []byte(a[0].(string) + "\x00" + a[1].(string) + "\x00" + a[2].(string)), nil
		default:
			return nil, fmt.Errorf("unknown description %q", k)
		}
	}
	return out, nil
}

func encodeRecord(r *object, i int64) []byte {
	var b []byte
	b = append(b, byte(getInt(r, "attributes", 0)))
	b = zz(b, getInt(r, "timestampDelta", 0))
	b = zz(b, getInt(r, "offsetDelta", i))
	b = zzBytes(b, r.V["key"], "key")
	b = zzBytes(b, r.V["value"], "value")
	hs, _ := r.V["headers"].([]any)
	b = zz(b, int64(len(hs)))
	for _, h := range hs {
		p := h.([]any)
		b = zzBytes(b, p[0], "header key")
		b = zzBytes(b, p[1], "header value")
	}
	return append(zz(nil, int64(len(b))), b...)
}

// encodeBatch: fields left out are computed; fields given are written as they are, right or wrong.
func encodeBatch(o *object) []byte {
	recs, _ := o.V["records"].([]any)
	var body []byte
	for i, r := range recs {
		body = append(body, encodeRecord(r.(*object), int64(i))...)
	}
	attrs := getInt(o, "attributes", 0)
	if v, ok := o.V["payload"]; ok {
		body = toBytes(v, "payload")
	} else if attrs&7 == 1 {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		w.Write(body)
		w.Close()
		body = z.Bytes()
	}
	base := getInt(o, "baseTimestamp", 0)
	maxTs := base
	for _, r := range recs {
		if t := base + getInt(r.(*object), "timestampDelta", 0); t > maxTs {
			maxTs = t
		}
	}
	n := int64(len(recs))
	var a []byte // from attributes on: what the CRC covers
	a = binary.BigEndian.AppendUint16(a, uint16(attrs))
	a = binary.BigEndian.AppendUint32(a, uint32(getInt(o, "lastOffsetDelta", n-1)))
	a = binary.BigEndian.AppendUint64(a, uint64(base))
	a = binary.BigEndian.AppendUint64(a, uint64(getInt(o, "maxTimestamp", maxTs)))
	a = binary.BigEndian.AppendUint64(a, uint64(getInt(o, "producerId", -1)))
	a = binary.BigEndian.AppendUint16(a, uint16(getInt(o, "producerEpoch", -1)))
	a = binary.BigEndian.AppendUint32(a, uint32(getInt(o, "baseSequence", -1)))
	a = binary.BigEndian.AppendUint32(a, uint32(getInt(o, "count", n)))
	a = append(a, body...)
	crc := int64(crc32.Checksum(a, castagnoli)) ^ getInt(o, "crcXor", 0)
	var b []byte
	b = binary.BigEndian.AppendUint64(b, uint64(getInt(o, "baseOffset", 0)))
	b = binary.BigEndian.AppendUint32(b, uint32(getInt(o, "length", int64(len(a)+9))))
	b = binary.BigEndian.AppendUint32(b, uint32(getInt(o, "partitionLeaderEpoch", -1)))
	b = append(b, byte(getInt(o, "magic", 2)))
	b = binary.BigEndian.AppendUint32(b, uint32(crc))
	b = append(b, a...)
	if cut := getInt(o, "cut", 0); cut > 0 { // leave that many bytes off the end
		b = b[:len(b)-int(cut)]
	}
	return b
}

func encodeMessageV01(o *object) []byte {
	magic := getInt(o, "magic", 1)
	var a []byte
	a = append(a, byte(magic), byte(getInt(o, "attributes", 0)))
	if magic > 0 {
		a = binary.BigEndian.AppendUint64(a, uint64(getInt(o, "timestamp", -1)))
	}
	put := func(v any) {
		if v == nil {
			a = binary.BigEndian.AppendUint32(a, 0xffffffff)
			return
		}
		x := toBytes(v, "message")
		a = binary.BigEndian.AppendUint32(a, uint32(len(x)))
		a = append(a, x...)
	}
	put(o.V["key"])
	put(o.V["value"])
	var b []byte
	b = binary.BigEndian.AppendUint64(b, uint64(getInt(o, "offset", 0)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(a)+4))
	b = binary.BigEndian.AppendUint32(b, uint32(int64(crc32.ChecksumIEEE(a))^getInt(o, "crcXor", 0)))
	return append(b, a...)
}

// decodeRecords describes what a Fetch answer carries.
func decodeRecords(b []byte) any {
	out := newObject()
	var batches, messages []any
	for len(b) >= 17 {
		size := int(int32(binary.BigEndian.Uint32(b[8:])))
		if size < 14 || len(b) < 12+size {
			break
		}
		if b[16] >= 2 {
			batches = append(batches, decodeBatch(b[:12+size]))
		} else {
			messages = append(messages, decodeMessageV01(b[:12+size]))
		}
		b = b[12+size:]
	}
	if batches != nil || messages == nil {
		if batches == nil {
			batches = []any{}
		}
		out.set("batches", batches)
	}
	if messages != nil {
		out.set("messages", messages)
	}
	if len(b) > 0 && messages == nil { // down-converted answers are padded
		out.set("cutBytes", num(int64(len(b))))
	}
	return out
}

func decodeMessageV01(b []byte) *object {
	o := newObject()
	o.set("offset", num(int64(binary.BigEndian.Uint64(b))))
	o.set("magic", num(int64(b[16])))
	if crc32.ChecksumIEEE(b[16:]) != binary.BigEndian.Uint32(b[12:]) {
		o.set("badCrc", true)
	}
	o.set("attributes", num(int64(int8(b[17]))))
	p := b[18:]
	if b[16] > 0 {
		o.set("timestamp", num(int64(binary.BigEndian.Uint64(p))))
		p = p[8:]
	}
	for _, k := range []string{"key", "value"} {
		n := int(int32(binary.BigEndian.Uint32(p)))
		p = p[4:]
		if n < 0 {
			o.set(k, nil)
			continue
		}
		o.set(k, bytesText(p[:n]))
		p = p[n:]
	}
	return o
}

func decodeBatch(b []byte) *object {
	o := newObject()
	i64 := func(p int) int64 { return int64(binary.BigEndian.Uint64(b[p:])) }
	i32 := func(p int) int64 { return int64(int32(binary.BigEndian.Uint32(b[p:]))) }
	i16 := func(p int) int64 { return int64(int16(binary.BigEndian.Uint16(b[p:]))) }
	if len(b) < 61 {
		o.set("shortBatch", "hex:"+hex.EncodeToString(b))
		return o
	}
	o.set("baseOffset", num(i64(0)))
	o.set("partitionLeaderEpoch", num(i32(12)))
	o.set("magic", num(int64(b[16])))
	if crc32.Checksum(b[21:], castagnoli) != binary.BigEndian.Uint32(b[17:]) {
		o.set("badCrc", true)
	}
	attrs := i16(21)
	o.set("attributes", num(attrs))
	o.set("lastOffsetDelta", num(i32(23)))
	o.set("baseTimestamp", num(i64(27)))
	o.set("maxTimestamp", num(i64(35)))
	o.set("producerId", num(i64(43)))
	o.set("producerEpoch", num(i16(51)))
	o.set("baseSequence", num(i32(53)))
	count := i32(57)
	o.set("count", num(count))
	body := b[61:]
	if attrs&7 == 1 {
		if r, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
			var z bytes.Buffer
			if _, err := z.ReadFrom(r); err == nil {
				body = z.Bytes()
			}
		}
	} else if attrs&7 != 0 {
		o.set("payload", "hex:"+hex.EncodeToString(body))
		return o
	}
	recs, err := parseRecords(body, int(count), attrs&0x20 != 0)
	if err != nil {
		o.set("badRecords", err.Error())
	}
	o.set("records", recs)
	return o
}

func parseRecords(b []byte, count int, control bool) (out []any, err error) {
	out = []any{}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	vi := func() int64 {
		v, n := binary.Varint(b)
		if n <= 0 {
			panic("bad varint")
		}
		b = b[n:]
		return v
	}
	vb := func() any {
		n := vi()
		if n < 0 {
			return nil
		}
		x := b[:n]
		b = b[n:]
		return bytesText(x)
	}
	for i := 0; i < count; i++ {
		vi() // length
		r := newObject()
		if b[0] != 0 {
			r.set("attributes", num(int64(b[0])))
		}
		b = b[1:]
		if td := vi(); td != 0 {
			r.set("timestampDelta", num(td))
		}
		if od := vi(); od != int64(i) {
			r.set("offsetDelta", num(od))
		}
		k, v := vb(), vb()
		r.set("key", k)
		r.set("value", v)
		if control {
			kb, vbb := toBytes(k, "key"), toBytes(v, "value")
			if len(kb) == 4 && len(vbb) == 6 {
				r = newObject()
				r.set("controlVersion", num(int64(binary.BigEndian.Uint16(kb))))
				r.set("control", map[uint16]string{0: "ABORT", 1: "COMMIT"}[binary.BigEndian.Uint16(kb[2:])])
				r.set("endMarkerVersion", num(int64(binary.BigEndian.Uint16(vbb))))
				r.set("coordinatorEpoch", num(int64(int32(binary.BigEndian.Uint32(vbb[2:])))))
			}
		}
		if n := vi(); n > 0 {
			hs := []any{}
			for j := int64(0); j < n; j++ {
				hk := vb()
				hs = append(hs, []any{hk, vb()})
			}
			r.set("headers", hs)
		}
		out = append(out, r)
	}
	if len(b) > 0 {
		return out, errors.New("bytes left over after the last record")
	}
	return out, nil
}
