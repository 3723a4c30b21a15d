package batch

// Retention says what Rebuild keeps.
type Retention struct {
	Keep            func(index int32) bool // asked once per record, in order
	DeleteHorizonMs int64                  // NoTimestamp: none to set; ignored if the batch has one already (KIP-534)
}

// Rebuild appends what compaction leaves of src. Base and last offset, producer fields and leader epoch stay, so that
// neither offsets nor sequence numbers move; with nothing kept an empty batch remains that holds just those, with
// everything kept src as it is. Kept frames stay byte for byte and are compressed with the same codec; only a new
// delete horizon, which takes the place of the base timestamp, has their timestamp deltas rewritten. (Apache also
// rebases the timestamps on the first kept record; the timestamps are the same.)
//
// It returns the extended slice and how many records it kept. inf and def may be nil: made for the call. Errors:
// those of a Cursor; dst is then returned as it was.
func Rebuild(dst []byte, src View, keep Retention, inf *Inflater, def *Deflater) ([]byte, int, error) {
	var c Cursor
	if err := c.Open(src, inf); err != nil {
		return dst, 0, err
	}
	if def == nil {
		def = new(Deflater)
	}
	horizon := keep.DeleteHorizonMs != NoTimestamp && !src.HasDeleteHorizon()
	maxTimestamp := NoTimestamp
	frames, kept := def.frames[:0], int32(0)
	for c.Next() {
		if !keep.Keep(c.Index()) {
			continue
		}
		kept++
		maxTimestamp = max(maxTimestamp, c.Timestamp())
		if horizon {
			tail := c.frames[c.f.tail:c.f.end]
			frames = appendFrame(frames, c.Timestamp()-keep.DeleteHorizonMs, int64(c.OffsetDelta()), tail)
		} else {
			frames = append(frames, c.Frame()...)
		}
	}
	def.keep(frames)
	if c.Err() != nil {
		return dst, 0, c.Err()
	}
	if kept == src.Count() && kept > 0 && !horizon {
		return append(dst, src...), int(kept), nil
	}
	h := headerOf(src)
	h.attributes &= attrKnown
	h.count = kept
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	if kept == 0 {
		h.attributes &^= attrCodec | attrDeleteHorizon
		h.baseTimestamp = NoTimestamp
	} else {
		dst = def.deflate(dst, src.Codec(), frames)
		if !src.IsLogAppendTime() {
			h.maxTimestamp = maxTimestamp
		}
		if horizon {
			h.attributes |= attrDeleteHorizon
			h.baseTimestamp = keep.DeleteHorizonMs
		}
	}
	h.write(View(dst[start:]))
	return dst, int(kept), nil
}

// Recompress appends what a topic stores whose compression.type is not the codec of src, a batch for which Validate
// said Info.Recompress under the same rules. Like Apache it makes the batch anew: offset deltas 0, 1, 2..., timestamps
// based on the first record, timestamp type as the topic has it. InfoOf(dst[len before:]) is then what the log wants.
//
// def must not be nil. The rejection is for a batch that has become too large, or whose inside is bad after all.
func Recompress(dst []byte, src View, rules *Rules, env *Env, def *Deflater) ([]byte, *Rejection) {
	var c Cursor
	if err := c.Open(src, env.Inflater); err != nil {
		return dst, refuseInflate(err)
	}
	h := headerOf(src)
	h.maxTimestamp = NoTimestamp
	frames := def.frames[:0]
	for c.Next() {
		if c.Index() == 0 {
			h.baseTimestamp = c.Timestamp()
		}
		h.maxTimestamp = max(h.maxTimestamp, c.Timestamp())
		tail := c.frames[c.f.tail:c.f.end]
		frames = appendFrame(frames, c.Timestamp()-h.baseTimestamp, int64(c.Index()), tail)
	}
	def.keep(frames)
	if c.Err() != nil {
		return dst, refuseInLog(codeInvalidRecord, c.Err().Error())
	}
	codec := rules.Compression.Codec(src.Codec())
	h.attributes = h.attributes&(attrTransactional|attrControl) | uint16(codec)
	if rules.LogAppendTime {
		h.attributes |= attrLogAppendTime
		h.maxTimestamp = env.NowMs
	}
	h.count = c.Index() + 1
	h.lastOffsetDelta = h.count - 1
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	dst = def.deflate(dst, codec, frames)
	if int64(len(dst)-start) > int64(rules.MaxMessageBytes) {
		return dst[:start], refuse(codeMessageTooLarge, "larger than max.message.bytes after recompression")
	}
	h.write(View(dst[start:]))
	return dst, nil
}
