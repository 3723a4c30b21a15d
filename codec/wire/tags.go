package wire

// TagReader walks one tagged section (KIP-482):
//
//	for t := r.Tags(); t.Next(r); {
//		switch t.ID {
//		case 0:
//			x.Field = r.Int32()
//		default:
//			x.UnknownTags = append(x.UnknownTags, t.Raw(r))
//		}
//	}
//
// Tags must ascend strictly, and each value must take the bytes that its size says.
type TagReader struct {
	ID   uint32 // the tag whose value is next
	left uint32
	any  bool
	end  int // offset in the Reader where the value ends
}

// Tags begins the tagged section of a struct.
func (r *Reader) Tags() TagReader {
	n := r.Uvarint() // not checked: tags are kept as they come, nothing is allocated by their number
	return TagReader{left: n, end: r.off}
}

// Next goes to the next tag. It is false at the end of the section and after an error.
func (t *TagReader) Next(r *Reader) bool {
	if t.left == 0 && r.off == t.end {
		return false
	}
	return t.next(r)
}

func (t *TagReader) next(r *Reader) bool {
	if r.off != t.end { // the value before took fewer or more bytes than it said
		r.Fail(ErrTags)
	}
	if r.err != nil || t.left == 0 {
		return false
	}
	t.left--
	id, size := r.Uvarint(), r.Uvarint()
	switch {
	case r.err != nil:
		return false
	case t.any && id <= t.ID:
		r.Fail(ErrTags)
		return false
	case uint64(size) > uint64(r.Rest()):
		r.short()
		return false
	}
	t.any = true
	t.ID = id
	t.end = r.off + int(size)
	return true
}

// Raw takes the value of the tag as it is.
func (t *TagReader) Raw(r *Reader) Tag { return Tag{ID: t.ID, Data: r.take(t.end - r.off)} }

// UnknownTags reads a tagged section none of whose tags is known, into dst's memory.
func (r *Reader) UnknownTags(dst []Tag) []Tag {
	b := r.b[r.off:]
	if len(b) > 0 && b[0] == 0 { // nearly always
		r.off++
		return dst[:0]
	}
	return r.someTags(dst[:0])
}

func (r *Reader) someTags(dst []Tag) []Tag {
	for t := r.Tags(); t.Next(r); {
		dst = append(dst, t.Raw(r))
	}
	return dst
}

// Tags writes a tagged section of nothing but unknown tags.
func (w *Writer) Tags(tags []Tag) {
	if len(tags) == 0 {
		w.B = append(w.B, 0)
		return
	}
	w.someTags(tags)
}

func (w *Writer) someTags(tags []Tag) {
	w.Uvarint(uint32(len(tags)))
	w.RestOfTags(tags)
}

// TagsBelow writes those tags that come before the known tag id and gives back the rest.
func (w *Writer) TagsBelow(tags []Tag, id uint32) []Tag {
	i := 0
	for i < len(tags) && tags[i].ID < id {
		i++
	}
	w.RestOfTags(tags[:i])
	if i < len(tags) && tags[i].ID == id {
		w.Fail(ErrTags)
	}
	return tags[i:]
}

// RestOfTags writes tags, which must ascend.
func (w *Writer) RestOfTags(tags []Tag) {
	for i := range tags {
		if i > 0 && tags[i].ID <= tags[i-1].ID {
			w.Fail(ErrTags)
		}
		w.Uvarint(tags[i].ID)
		w.Uvarint(uint32(len(tags[i].Data)))
		w.B = append(w.B, tags[i].Data...)
	}
}

// BeginTag writes the tag id; the value follows, and EndTag with what BeginTag gave back. No Cut may lie in the value.
func (w *Writer) BeginTag(id uint32) int {
	w.Uvarint(id)
	w.B = append(w.B, 0)
	return len(w.B)
}

// EndTag puts the size in front of the value that began at mark. Values are short as a rule: one byte is reserved for the
// size, and a value of 128 bytes or more is moved.
func (w *Writer) EndTag(mark int) {
	size := len(w.B) - mark
	if size < 0x80 {
		w.B[mark-1] = byte(size)
		return
	}
	extra := 1
	for v := size >> 14; v > 0; v >>= 7 {
		extra++
	}
	for range extra {
		w.B = append(w.B, 0)
	}
	copy(w.B[mark+extra:], w.B[mark:mark+size])
	v := uint32(size)
	for i := mark - 1; i < mark+extra; i++ {
		w.B[i] = byte(v) | 0x80
		v >>= 7
	}
	w.B[mark+extra-1] &= 0x7f
}
