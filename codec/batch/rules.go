package batch

import (
	"fmt"
	"math"
	"strings"
)

// Error codes of Kafka that a Rejection carries.
const (
	codeUnknownServerError     int16 = -1
	codeCorruptMessage         int16 = 2
	codeMessageTooLarge        int16 = 10
	codeInvalidTimestamp       int16 = 32
	codeUnsupportedCompression int16 = 76
	codeInvalidRecord          int16 = 87
)

// Target is what a topic's compression.type asks for. The zero value keeps the producer's codec.
type Target uint8

// TargetProducer stores batches as they come; TargetOf(c) stores all of them with codec c.
const TargetProducer Target = 0

// TargetOf returns the target that recompresses to c (CodecNone: "uncompressed").
func TargetOf(c Codec) Target { return Target(c) + 1 }

// Codec is what a batch that came with from ends up with.
func (t Target) Codec(from Codec) Codec {
	if t == TargetProducer {
		return from
	}
	return Codec(t - 1)
}

// Rules are what the settings of a topic and the broker ask of a produced batch. Shared by all producers of a topic,
// never changed once in use. Start from DefaultRules: the zero value accepts nothing.
type Rules struct {
	MaxMessageBytes int32  // max.message.bytes: the size of a whole batch
	NeedKeys        bool   // cleanup.policy contains compact: no record without key
	LogAppendTime   bool   // message.timestamp.type
	BeforeMaxMs     int64  // message.timestamp.before.max.ms; MaxInt64 for no bound
	AfterMaxMs      int64  // message.timestamp.after.max.ms; MaxInt64 for no bound
	Compression     Target // compression.type
	FullCompressed  bool   // kaas.compressed.batch.validation=full: look inside compressed batches as Apache does
}

// DefaultRules are those of a topic without settings of its own.
func DefaultRules() Rules {
	return Rules{MaxMessageBytes: 1048588, BeforeMaxMs: math.MaxInt64, AfterMaxMs: math.MaxInt64}
}

// bounded reports whether timestamps of records have to be looked at.
func (r *Rules) bounded() bool {
	return !r.LogAppendTime && (r.BeforeMaxMs != math.MaxInt64 || r.AfterMaxMs != math.MaxInt64)
}

// opens reports whether a batch compressed with c has to be decompressed.
func (r *Rules) opens(c Codec) bool {
	return c != CodecNone && c.Known() && (r.FullCompressed || r.NeedKeys || r.bounded() || r.Compression.Codec(c) != c)
}

// Heavy reports whether validating set, or the recompression that follows, takes too long for an event loop. It reads
// the header alone and may be asked about any bytes.
func (r *Rules) Heavy(set []byte) bool {
	if len(set) < HeaderSize {
		return false
	}
	c := View(set).Codec()
	return r.opens(c) || r.Compression.Codec(c) != c
}

// Env is what differs from one produce request to the next.
type Env struct {
	NowMs          int64     // wall clock: append time, and the middle of the timestamp window
	ProduceVersion int16     // of the request, 3 or later
	Inflater       *Inflater // reused by the caller; nil makes one for a batch that is opened
}

// inflater is never nil; made anew it costs nothing until it meets a compressed payload.
func (e *Env) inflater() *Inflater {
	if e.Inflater == nil {
		e.Inflater = NewInflater(DefaultInflateLimit)
	}
	return e.Inflater
}

// Info is what the log wants to know of an accepted batch.
type Info struct {
	BaseOffset      int64 // as it stands: 0 from Validate
	LeaderEpoch     int32 // as it stands
	Size            int32 // of the whole batch, header included
	LastOffsetDelta int32
	Count           int32
	BaseTimestamp   int64 // ms
	MaxTimestamp    int64 // ms; from Validate as stored: the true maximum, or the append time
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	Codec           Codec
	Transactional   bool
	Control         bool
	LogAppendTime   bool
	Recompress      bool // the topic wants another codec: store what Recompress makes of the batch, not the batch
}

// InfoOf reads the header of a batch that was accepted, or of one that PeekHeader found.
func InfoOf(v View) Info {
	return Info{
		BaseOffset:      v.BaseOffset(),
		LeaderEpoch:     v.PartitionLeaderEpoch(),
		Size:            int32(v.Size()),
		LastOffsetDelta: v.LastOffsetDelta(),
		Count:           v.Count(),
		BaseTimestamp:   v.BaseTimestamp(),
		MaxTimestamp:    v.MaxTimestamp(),
		ProducerID:      v.ProducerID(),
		ProducerEpoch:   v.ProducerEpoch(),
		BaseSequence:    v.BaseSequence(),
		Codec:           v.Codec(),
		Transactional:   v.IsTransactional(),
		Control:         v.IsControl(),
		LogAppendTime:   v.IsLogAppendTime(),
	}
}

// RecordError names one record that may not be stored (Produce v8+).
type RecordError struct {
	Index   int32 // in the batch
	Message string
}

// Rejection says why the records of a partition are refused, in the terms of a Produce response.
type Rejection struct {
	Code         int16  // Kafka's error code
	Message      string // error_message; empty where Apache Kafka 3.7 answers null
	RecordErrors []RecordError
	LogStart     bool   // the response states the log start offset; -1 otherwise
	Reason       string // for our own log; never sent
}

// Error makes a Rejection usable as an error.
func (r *Rejection) Error() string {
	return fmt.Sprintf("batch: rejected with error %d: %s", r.Code, r.Reason)
}

// refuse makes the rejection of a batch that never got as far as the log.
func refuse(code int16, reason string) *Rejection { return &Rejection{Code: code, Reason: reason} }

// refuseInLog makes the rejection of a batch that the log looked at.
func refuseInLog(code int16, reason string) *Rejection {
	return &Rejection{Code: code, Reason: reason, LogStart: true}
}

// refuseRecords makes the rejection that lists records.
func refuseRecords(errs []RecordError, badTime bool) *Rejection {
	r := &Rejection{Code: codeInvalidRecord, RecordErrors: errs, LogStart: true}
	if badTime {
		r.Code = codeInvalidTimestamp
		r.Message = "One or more records have been rejected due to invalid timestamp"
	} else {
		shown := make([]string, 0, 3)
		for _, e := range errs[:min(3, len(errs))] {
			shown = append(shown, fmt.Sprintf("RecordError(batchIndex=%d, message='%s')", e.Index, e.Message))
		}
		r.Message = fmt.Sprintf("One or more records have been rejected due to %d record errors in total, "+
			"and only showing the first three errors at most: [%s]", len(errs), strings.Join(shown, ", "))
	}
	r.Reason = r.Message
	return r
}
