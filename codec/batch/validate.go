package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Validate does to set, the records of one partition in a produce request, what Apache Kafka 3.7 does before it
// appends them: there must be exactly one sound batch, which is then set[:Info.Size]. It corrects timestamp type and
// maximum timestamp in place; base offset and leader epoch are for the log to stamp. Accepting allocates nothing as
// long as the batch is not decompressed. Where Info.Recompress is set, nothing is corrected yet: Recompress does it.
//
// The order of the checks is Apache's, as the first that fails decides the error. Where it departs from Apache:
// a compressed batch stays closed unless the rules need its inside, a record of a compressed batch must fill its
// frame (Apache's reader skips over the difference, and consumers then fail), and a batch of 26 bytes is corrupt
// (Apache: unknown server error).
func Validate(set []byte, rules *Rules, env *Env) (Info, *Rejection) {
	v, rej := single(set, env)
	if rej == nil {
		rej = checkHeader(v, rules)
	}
	maxTimestamp := NoTimestamp
	if rej == nil {
		maxTimestamp, rej = checkRecords(v, rules, env)
	}
	if rej != nil {
		return Info{}, rej
	}
	info := InfoOf(v)
	if rules.Compression.Codec(info.Codec) != info.Codec {
		info.Recompress = true
		return info, nil
	}
	if rules.LogAppendTime {
		v.SetLogAppendTime(env.NowMs)
	} else {
		v.SetMaxTimestamp(maxTimestamp)
	}
	info.MaxTimestamp, info.LogAppendTime = v.MaxTimestamp(), rules.LogAppendTime
	return info, nil
}

// single finds the one batch of set and makes sure that no second one follows. Bytes after it that are no batch
// (fewer than a header, or fewer than their own length says) are ignored.
func single(set []byte, env *Env) (View, *Rejection) {
	size, rej := batchSize(set)
	if rej != nil {
		return nil, rej
	}
	if size == 0 {
		return nil, refuse(codeInvalidRecord, "no whole batch")
	}
	v := View(set[:size:size])
	if v.Magic() != 2 {
		return nil, refuse(codeInvalidRecord, "message format 0 or 1 in Produce v3 or later")
	}
	if env.ProduceVersion < 7 && len(v) > posAttributes+1 && v.Codec() == CodecZstd {
		return nil, refuse(codeUnsupportedCompression, "zstd before Produce v7")
	}
	size, rej = batchSize(set[size:])
	if rej != nil {
		rej.Message = ""
		return nil, rej
	}
	if size != 0 {
		return nil, refuse(codeInvalidRecord, "more than one batch")
	}
	return v, nil
}

// batchSize returns the size of the batch at the start of b, 0 if it is cut off. Apache answers these rejections
// while it still looks at the request as a whole, with a message.
func batchSize(b []byte) (int, *Rejection) {
	const minLegacy = 14 // the smallest length of any message format
	if len(b) < logOverhead {
		return 0, nil
	}
	length := int32(binary.BigEndian.Uint32(b[posLength:]))
	if length < minLegacy {
		r := refuse(codeCorruptMessage, "length below any header")
		r.Message = fmt.Sprintf("Record size %d is less than the minimum record overhead (%d)", length, minLegacy)
		return 0, r
	}
	if len(b) <= posMagic {
		return 0, nil
	}
	if magic := int8(b[posMagic]); magic < 0 || magic > 2 {
		r := refuse(codeCorruptMessage, "unknown message format")
		r.Message = fmt.Sprintf("Invalid magic found in record: %d", magic)
		return 0, r
	}
	if length > math.MaxInt32-logOverhead {
		return 0, refuse(codeUnknownServerError, "length overflows")
	}
	if size := logOverhead + int(length); size <= len(b) {
		return size, nil
	}
	return 0, nil
}

// checkHeader checks size, CRC and header fields.
func checkHeader(v View, rules *Rules) *Rejection {
	switch {
	case v.BaseOffset() != 0:
		return refuseInLog(codeInvalidRecord, "base offset is not 0")
	case int64(len(v)) > int64(rules.MaxMessageBytes):
		return refuse(codeMessageTooLarge, "larger than max.message.bytes")
	case len(v) < HeaderSize:
		return refuse(codeCorruptMessage, "shorter than a header")
	case !v.CheckCRC():
		return refuse(codeCorruptMessage, "CRC does not match")
	case !v.Codec().Known():
		return refuseInLog(codeUnknownServerError, "unknown codec")
	case v.LastOffsetDelta() < 0:
		return refuseInLog(codeInvalidRecord, "negative last offset delta")
	case v.Count() <= 0:
		return refuseInLog(codeInvalidRecord, "no records")
	case int64(v.LastOffsetDelta())+1 != int64(v.Count()):
		return refuseInLog(codeInvalidRecord, "last offset delta does not fit the count")
	case v.IsControl():
		return refuseInLog(codeInvalidRecord, "control batch from a client")
	case v.HasProducerID() && v.BaseSequence() < 0:
		return refuseInLog(codeInvalidRecord, "producer id without sequence")
	}
	return nil
}

// checkRecords checks the record frames and returns their maximum timestamp.
func checkRecords(v View, rules *Rules, env *Env) (int64, *Rejection) {
	codec := v.Codec()
	badType := v.IsLogAppendTime() && (rules.LogAppendTime || v.MaxTimestamp() == NoTimestamp)
	if codec != CodecNone && !rules.opens(codec) {
		if badType {
			return 0, refuseRecords([]RecordError{{0, badTypeMessage}}, true)
		}
		return max(v.MaxTimestamp(), NoTimestamp), nil // taken on trust
	}
	frames := v.Payload()
	if codec != CodecNone {
		var err error
		if frames, err = env.inflater().inflate(codec, frames); err != nil {
			return 0, refuseInflate(err)
		}
	}
	want := demands{order: codec != CodecNone}
	if rules.bounded() && !v.IsLogAppendTime() {
		want.window = &window{env.NowMs, rules.BeforeMaxMs, rules.AfterMaxMs}
	}
	w := walkFrames(frames, v.Count(), v.BaseTimestamp(), want)
	switch w.fault {
	case faultInvalid:
		return 0, refuseInLog(codeInvalidRecord, "record frames do not hold together")
	case faultOverlong:
		return 0, refuseInLog(codeUnknownServerError, "overlong varint")
	}
	if v.IsLogAppendTime() {
		w.maxTimestamp = max(v.MaxTimestamp(), NoTimestamp)
		all := window{env.NowMs, rules.BeforeMaxMs, rules.AfterMaxMs}
		w.outOfRange = rules.bounded() && all.excludes(v.MaxTimestamp())
	}
	if badType || w.outOfRange || rules.NeedKeys && w.noKey {
		return 0, listErrors(v, frames, rules, env)
	}
	if w.disordered && want.order && rules.Compression.Codec(codec) == codec {
		return 0, refuseInLog(codeUnknownServerError, "offset deltas of a compressed batch are not 0, 1, 2...")
	}
	return w.maxTimestamp, nil
}

const (
	noKeyMessage   = "Compacted topic cannot accept message without key."
	badTypeMessage = "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."
)

// listErrors names the records for which the batch is refused. The frames have been walked without a fault.
func listErrors(v View, frames []byte, rules *Rules, env *Env) *Rejection {
	var errs []RecordError
	badTime := false
	win := window{env.NowMs, rules.BeforeMaxMs, rules.AfterMaxMs}
	var f frame
	for i := int32(0); i < v.Count(); i++ {
		if parseFrame(frames, f.end, &f) != faultNone {
			panic(fmt.Sprintf("BUG: frame %d at %d is bad on the second reading", i, f.end))
		}
		t := v.BaseTimestamp() + f.timestampDelta
		if v.IsLogAppendTime() {
			t = v.MaxTimestamp()
		}
		switch {
		case rules.NeedKeys && f.keyLen < 0:
			errs = append(errs, RecordError{i, noKeyMessage})
		case !rules.LogAppendTime && t != NoTimestamp:
			if win.excludes(t) {
				badTime = true
				errs = append(errs, RecordError{i, fmt.Sprintf("Timestamp %d of message with offset %d is out of range. "+
					"The timestamp should be within [%d, %d]", t, f.offsetDelta, win.now-win.before, win.now+win.after)})
			}
		case v.IsLogAppendTime():
			badTime = true
			errs = append(errs, RecordError{i, badTypeMessage})
		}
	}
	return refuseRecords(errs, badTime)
}

// refuseInflate answers a payload that cannot be decompressed as Apache does: as an unexpected exception, unless it
// is merely too large for us.
func refuseInflate(err error) *Rejection {
	if errors.Is(err, ErrInflateLimit) {
		return refuse(codeMessageTooLarge, "decompresses to more than the limit")
	}
	return refuseInLog(codeUnknownServerError, err.Error())
}
