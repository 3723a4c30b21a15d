package logtool

import (
	"encoding/binary"
	"fmt"
	"strings"

	"kaas/cmd/kaas/cli"
	"kaas/codec/batch"
)

// batchPrinter prints the batches of one file.
type batchPrinter struct {
	d       *dump
	path    string
	table   columns
	inf     *batch.Inflater // made when the first batch is opened
	count   int
	records int64
	first   int64
	last    int64
}

func newBatchPrinter(d *dump, path string) *batchPrinter {
	return &batchPrinter{d: d, path: path, table: d.columns([]int{10, 19, 8, 9, 7, 24, 6, 12, 13},
		"POSITION", "OFFSETS", "RECORDS", "BYTES", "CODEC", "MAX-TIMESTAMP", "EPOCH", "PRODUCER", "SEQUENCES", "FLAGS")}
}

type batchObject struct {
	Type          string `json:"type"`
	File          string `json:"file"`
	Position      int64  `json:"position"`
	BaseOffset    int64  `json:"baseOffset"`
	LastOffset    int64  `json:"lastOffset"`
	Records       int32  `json:"records"`
	Bytes         int    `json:"bytes"`
	Compression   string `json:"compression"`
	TimestampType string `json:"timestampType"`
	BaseTimestamp int64  `json:"baseTimestamp"`
	MaxTimestamp  int64  `json:"maxTimestamp"`
	DeleteHorizon *int64 `json:"deleteHorizon,omitempty"`
	LeaderEpoch   int32  `json:"leaderEpoch"`
	ProducerID    int64  `json:"producerId"`
	ProducerEpoch int16  `json:"producerEpoch"`
	BaseSequence  int32  `json:"baseSequence"`
	LastSequence  int32  `json:"lastSequence"`
	Transactional bool   `json:"transactional"`
	Control       bool   `json:"control"`
	CRC           uint32 `json:"crc"`
	CRCValid      bool   `json:"crcValid"`
}

func (p *batchPrinter) batch(v batch.View, pos int64) {
	if p.count == 0 {
		p.first = v.BaseOffset()
	}
	p.count++
	p.records += int64(v.Count())
	p.last = v.LastOffset()
	valid := v.CheckCRC()
	producer, sequences := "-", "-"
	lastSeq := batch.NoSequence
	if v.HasProducerID() {
		producer = fmt.Sprintf("%d/%d", v.ProducerID(), v.ProducerEpoch())
	}
	if v.BaseSequence() >= 0 {
		lastSeq = (v.BaseSequence() + v.LastOffsetDelta()) & (1<<31 - 1)
		sequences = span(int64(v.BaseSequence()), int64(lastSeq))
	}
	p.table.row(number(pos), span(v.BaseOffset(), v.LastOffset()), number(int64(v.Count())), number(int64(v.Size())), v.Codec().String(),
		clock(v.MaxTimestamp()), number(int64(v.PartitionLeaderEpoch())), producer, sequences, flags(v, valid))
	o := batchObject{Type: "batch", File: p.path, Position: pos, BaseOffset: v.BaseOffset(), LastOffset: v.LastOffset(), Records: v.Count(),
		Bytes: v.Size(), Compression: v.Codec().String(), TimestampType: timestampType(v), BaseTimestamp: v.BaseTimestamp(),
		MaxTimestamp: v.MaxTimestamp(), LeaderEpoch: v.PartitionLeaderEpoch(), ProducerID: v.ProducerID(), ProducerEpoch: v.ProducerEpoch(),
		BaseSequence: v.BaseSequence(), LastSequence: lastSeq, Transactional: v.IsTransactional(), Control: v.IsControl(), CRC: v.CRC(), CRCValid: valid}
	if v.HasDeleteHorizon() {
		o.DeleteHorizon = &o.BaseTimestamp
	}
	p.d.object(o)
	if !valid {
		p.d.report(&Problem{p.path, pos, "batch of offsets " + span(v.BaseOffset(), v.LastOffset()) + ": CRC does not match"})
		return
	}
	if p.d.records || p.d.groups {
		p.inside(v, pos)
	}
}

func timestampType(v batch.View) string {
	if v.IsLogAppendTime() {
		return "LogAppendTime"
	}
	return "CreateTime"
}

// flags names what is special about a batch.
func flags(v batch.View, valid bool) string {
	var list []string
	if v.IsTransactional() {
		list = append(list, "transactional")
	}
	if v.IsControl() {
		list = append(list, "control")
		if m, ok := batch.ReadMarker(v); ok && valid {
			list[len(list)-1] = strings.ToLower(m.Type.String())
		}
	}
	if v.IsLogAppendTime() {
		list = append(list, "append-time")
	}
	if v.HasDeleteHorizon() {
		list = append(list, "delete-horizon")
	}
	if !valid {
		list = append(list, "BAD-CRC")
	}
	if list == nil {
		return "-"
	}
	return strings.Join(list, ",")
}

// recordObject is a record; of a text and its base64 only one is given, none for null.
type recordObject struct {
	Type        string         `json:"type"`
	File        string         `json:"file"`
	Offset      int64          `json:"offset"`
	Timestamp   int64          `json:"timestamp"`
	Key         *string        `json:"key"`
	KeyBase64   string         `json:"keyBase64,omitempty"`
	Value       *string        `json:"value"`
	ValueBase64 string         `json:"valueBase64,omitempty"`
	Headers     []headerObject `json:"headers"`
}

type headerObject struct {
	Key         string  `json:"key"`
	Value       *string `json:"value"`
	ValueBase64 string  `json:"valueBase64,omitempty"`
}

type controlObject struct {
	Type             string `json:"type"`
	File             string `json:"file"`
	Offset           int64  `json:"offset"`
	Timestamp        int64  `json:"timestamp"`
	Control          string `json:"control"`
	CoordinatorEpoch *int32 `json:"coordinatorEpoch,omitempty"`
}

// inside prints the records of a batch whose CRC matches.
func (p *batchPrinter) inside(v batch.View, pos int64) {
	if p.inf == nil {
		p.inf = batch.NewInflater(inflateMax)
	}
	var c batch.Cursor
	if err := c.Open(v, p.inf); err != nil {
		p.d.report(&Problem{p.path, pos, err.Error()})
		return
	}
	marker, isMarker := batch.ReadMarker(v)
	for c.Next() {
		if v.IsControl() {
			p.control(&c, marker, isMarker)
		} else if !p.d.groups || !p.grouped(&c, pos) {
			p.record(&c)
		}
	}
	if err := c.Err(); err != nil {
		p.d.report(&Problem{p.path, pos, fmt.Sprintf("record %d of the batch: %v", c.Index()+1, err)})
	}
}

// inflateMax bounds what one batch may decompress to, in bytes.
const inflateMax = 1 << 30

func (p *batchPrinter) control(c *batch.Cursor, m batch.Marker, isMarker bool) {
	o := controlObject{Type: "controlRecord", File: p.path, Offset: c.Offset(), Timestamp: c.Timestamp()}
	text := ""
	switch {
	case isMarker:
		o.Control, o.CoordinatorEpoch = strings.ToLower(m.Type.String()), &m.CoordinatorEpoch
		text = fmt.Sprintf(" coordinator-epoch=%d", m.CoordinatorEpoch)
	case len(c.Key()) >= 4:
		o.Control = fmt.Sprintf("type %d", int16(binary.BigEndian.Uint16(c.Key()[2:])))
	default:
		o.Control = "no type"
	}
	p.d.text("  offset=%d time=%s control=%s%s", o.Offset, clock(o.Timestamp), o.Control, text)
	p.d.object(o)
}

func (p *batchPrinter) record(c *batch.Cursor) {
	h := c.Headers()
	if p.d.json {
		o := recordObject{Type: "record", File: p.path, Offset: c.Offset(), Timestamp: c.Timestamp(), Headers: make([]headerObject, 0, h.Len())}
		o.Key, o.KeyBase64 = cli.Content(c.Key())
		o.Value, o.ValueBase64 = cli.Content(c.Value())
		for k, v, ok := h.Next(); ok; k, v, ok = h.Next() {
			x := headerObject{Key: string(k)}
			x.Value, x.ValueBase64 = cli.Content(v)
			o.Headers = append(o.Headers, x)
		}
		p.d.object(o)
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "  offset=%d time=%s key=%s value=%s", c.Offset(), clock(c.Timestamp()), readable(c.Key()), readable(c.Value()))
	for k, v, ok := h.Next(); ok; k, v, ok = h.Next() {
		fmt.Fprintf(&b, " %s=%s", readable(k), readable(v))
	}
	p.d.text("%s", b.String())
}

type logEndObject struct {
	Type    string `json:"type"`
	File    string `json:"file"`
	Batches int    `json:"batches"`
	Records int64  `json:"records"`
	Bytes   int64  `json:"bytes"` // of the batches
	Spare   int64  `json:"spareBytes"`
}

func (p *batchPrinter) end(r *batches) {
	end := r.pos - r.zero
	line := fmt.Sprintf("%d batches, %d records, %d bytes", p.count, p.records, end)
	if p.count > 0 {
		line += ", offsets " + span(p.first, p.last)
	}
	if r.zero > 0 {
		line += fmt.Sprintf(", %d bytes allocated ahead", r.zero)
	}
	p.d.text("%s", line)
	p.d.object(logEndObject{"end", p.path, p.count, p.records, end, r.zero})
}
