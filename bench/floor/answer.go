package floor

import "kaas/bench/frames"

// answer handles every request but Produce. req is the whole frame; false closes the connection.
func (s *Server) answer(c *conn, key uint16, req []byte) bool {
	start := len(c.out)
	c.out = append(c.out, 0, 0, 0, 0)
	c.out = append(c.out, req[frames.CorrelationAt:frames.CorrelationAt+4]...)
	r := reader{b: req[frames.RequestHead:]}
	switch key {
	case frames.KeyFetch:
		s.fetch(c, &r)
	case frames.KeyListOffsets:
		s.listOffsets(c, &r)
	case frames.KeyMetadata:
		s.metadata(c, &r)
	case frames.KeyCreateTopics:
		s.createTopics(c, &r)
	case frames.KeyAPIVersions:
		c.out = be.AppendUint16(c.out, 0)
		keys := []uint16{frames.KeyProduce, frames.VersionProduce, frames.KeyFetch, frames.VersionFetch, frames.KeyListOffsets, frames.VersionListOffsets,
			frames.KeyMetadata, frames.VersionMetadata, frames.KeyAPIVersions, frames.VersionAPIVersions, frames.KeyCreateTopics, frames.VersionCreateTopics}
		c.out = be.AppendUint32(c.out, uint32(len(keys)/2))
		for i := 0; i < len(keys); i += 2 {
			c.out = be.AppendUint16(c.out, keys[i])
			c.out = be.AppendUint16(c.out, keys[i+1])
			c.out = be.AppendUint16(c.out, keys[i+1])
		}
	default:
		return false
	}
	be.PutUint32(c.out[start:], uint32(len(c.out)-start-4+c.send))
	return !r.bad
}

// reader takes fields off a request; bad is set when one is missing.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad = true
		return make([]byte, 8)
	}
	head := r.b[:n]
	r.b = r.b[n:]
	return head
}

func (r *reader) int32() int     { return int(int32(be.Uint32(r.take(4)))) }
func (r *reader) int64() int64   { return int64(be.Uint64(r.take(8))) }
func (r *reader) string() []byte { return r.take(int(int16(be.Uint16(r.take(2))))) }

func appendString(b, s []byte) []byte {
	return append(be.AppendUint16(b, uint16(len(s))), s...)
}

func (s *Server) partition(name []byte, index int) *partition {
	t := s.topics[string(name)]
	if t == nil || index < 0 || index >= len(t.parts) {
		return nil
	}
	return t.parts[index]
}

func (s *Server) fetch(c *conn, r *reader) {
	r.take(4 + 4 + 4 + 4 + 1 + 4 + 4 + 4)
	name := r.string()
	r.take(4)
	index := r.int32()
	r.take(4)
	offset := r.int64()
	r.take(8)
	limit := int64(r.int32())
	p := s.partition(name, index)
	code, end := uint16(3), int64(0)
	if p != nil {
		if code, end = 0, p.end(); offset < 0 || offset > end {
			code = 1
		}
	}
	if code == 0 && offset < end {
		c.sendPart, c.sendAt = p, offset/p.records*p.each
		c.send = int(min(max(limit, p.each), p.size-c.sendAt)) // the last batch is cut, as Apache does
	}
	c.out = be.AppendUint32(c.out, 0) // not throttled
	c.out = be.AppendUint16(c.out, 0)
	c.out = be.AppendUint32(c.out, 0) // no session
	c.out = be.AppendUint32(c.out, 1)
	c.out = appendString(c.out, name)
	c.out = be.AppendUint32(c.out, 1)
	c.out = be.AppendUint32(c.out, uint32(index))
	c.out = be.AppendUint16(c.out, code)
	c.out = be.AppendUint64(c.out, uint64(end))
	c.out = be.AppendUint64(c.out, uint64(end))
	c.out = be.AppendUint64(c.out, 0)
	c.out = be.AppendUint32(c.out, ^uint32(0)) // no aborted transactions
	c.out = be.AppendUint32(c.out, ^uint32(0)) // no other replica
	c.out = be.AppendUint32(c.out, uint32(c.send))
}

func (s *Server) listOffsets(c *conn, r *reader) {
	r.take(8)
	name := r.string()
	r.take(4)
	index, timestamp := r.int32(), r.int64()
	code, offset := uint16(3), int64(-1)
	if p := s.partition(name, index); p != nil {
		code, offset = 0, 0
		if timestamp == -1 {
			offset = p.end()
		}
	}
	c.out = be.AppendUint32(c.out, 1)
	c.out = appendString(c.out, name)
	c.out = be.AppendUint32(c.out, 1)
	c.out = be.AppendUint32(c.out, uint32(index))
	c.out = be.AppendUint16(c.out, code)
	c.out = be.AppendUint64(c.out, ^uint64(0))
	c.out = be.AppendUint64(c.out, uint64(offset))
}

func (s *Server) metadata(c *conn, r *reader) {
	c.out = be.AppendUint32(c.out, 0) // not throttled
	c.out = be.AppendUint32(c.out, 1)
	c.out = be.AppendUint32(c.out, 1)
	c.out = appendString(c.out, []byte("127.0.0.1"))
	c.out = be.AppendUint32(c.out, uint32(s.port))
	c.out = be.AppendUint16(c.out, 0xffff) // no rack
	c.out = be.AppendUint16(c.out, 0xffff) // no cluster id
	c.out = be.AppendUint32(c.out, 1)
	count := r.int32()
	c.out = be.AppendUint32(c.out, uint32(max(count, 0)))
	for ; count > 0 && !r.bad; count-- {
		name := r.string()
		t, code := s.topics[string(name)], uint16(0)
		if t == nil {
			t, code = &topic{}, 3
		}
		c.out = be.AppendUint16(c.out, code)
		c.out = appendString(c.out, name)
		c.out = append(c.out, 0)
		c.out = be.AppendUint32(c.out, uint32(len(t.parts)))
		for i := range t.parts {
			c.out = be.AppendUint16(c.out, 0)
			for _, v := range []uint32{uint32(i), 1, 1, 1, 1, 1} { // index, leader, replicas, in-sync replicas
				c.out = be.AppendUint32(c.out, v)
			}
		}
	}
}

func (s *Server) createTopics(c *conn, r *reader) {
	c.out = be.AppendUint32(c.out, 0)
	count := r.int32()
	c.out = be.AppendUint32(c.out, uint32(max(count, 0)))
	for ; count > 0 && !r.bad; count-- {
		name, parts := r.string(), r.int32()
		r.take(2 + 4 + 4)
		code := uint16(0)
		if s.create(string(name), parts) == nil {
			code = 17
		}
		c.out = appendString(c.out, name)
		c.out = be.AppendUint16(c.out, code)
		c.out = be.AppendUint16(c.out, 0xffff)
	}
}
