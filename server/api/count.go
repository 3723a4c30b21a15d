package api

import (
	"errors"
	"reflect"
	"sync/atomic"

	"kaas/codec/api"
	"kaas/netio"
	"kaas/server/metrics/counters"
)

// counted is what the service counts on, and how it finds its way there.
type counted struct {
	set     *counters.Set
	workers *counters.Shard                  // of all workers together
	tags    [maxKey]int32                    // of replies, by API key; 0: not served
	walks   [maxKey]atomic.Pointer[codeWalk] // where the error codes of responses are; made when first needed
}

func (c *counted) init() {
	names := make([]string, len(served))
	for i := range served {
		fact, _ := api.Lookup(served[i].key)
		names[i] = fact.Name
		c.tags[served[i].key] = int32(i + 1)
	}
	c.set = counters.NewSet(names)
	c.workers = c.set.NewShard()
}

// Counters are what the service counts; read by metrics.
func (s *Service) Counters() *counters.Set { return s.counted.set }

// Done counts requests that were answered: for netio.Config.OnDone.
func (s *Service) Done(l *netio.Loop, done []netio.Done) { l.Data.(*loopState).shard.Answered(done) }

// newReply reserves the reply to a request of that key.
func (s *Service) newReply(c *netio.Conn, key int16) *netio.Reply {
	r := c.NewReply()
	r.Tag = s.counted.tags[key]
	return r
}

// error counts an error code that is answered.
func (c *counted) error(key int16, code api.ErrorCode) { c.set.Error(c.tags[key], int16(code)) }

// errors counts the error codes of a whole response. It allocates nothing but the first time.
func (c *counted) errors(key int16, m api.Message) {
	v := reflect.ValueOf(m).Elem()
	w := c.walks[key].Load()
	if w == nil {
		w = newCodeWalk(v.Type())
		c.walks[key].Store(w)
	}
	w.each(v, func(code api.ErrorCode) { c.error(key, code) })
}

// codeWalk says where the error codes of a type of message are.
type codeWalk struct {
	codes []int // fields that are a code
	inner []innerWalk
}

// innerWalk is a field with codes inside: a struct, or a slice of them.
type innerWalk struct {
	field int
	slice bool
	walk  *codeWalk
}

var codeType = reflect.TypeFor[api.ErrorCode]()

func newCodeWalk(t reflect.Type) *codeWalk {
	w := new(codeWalk)
	for i := range t.NumField() {
		f := t.Field(i).Type
		slice := f.Kind() == reflect.Slice
		if slice {
			f = f.Elem()
		}
		switch {
		case f == codeType && !slice:
			w.codes = append(w.codes, i)
		case f.Kind() == reflect.Struct:
			if inner := newCodeWalk(f); len(inner.codes)+len(inner.inner) > 0 {
				w.inner = append(w.inner, innerWalk{field: i, slice: slice, walk: inner})
			}
		}
	}
	return w
}

// each calls f for every code that is not 0.
func (w *codeWalk) each(v reflect.Value, f func(api.ErrorCode)) {
	for _, i := range w.codes {
		if code := v.Field(i).Int(); code != 0 {
			f(api.ErrorCode(code))
		}
	}
	for i := range w.inner {
		in := &w.inner[i]
		field := v.Field(in.field)
		if !in.slice {
			in.walk.each(field, f)
			continue
		}
		for j := range field.Len() {
			in.walk.each(field.Index(j), f)
		}
	}
}

// closingOf says under which reason a closed connection is counted.
func closingOf(err error) counters.Closing {
	if err == nil {
		return counters.ByPeer
	}
	for _, r := range [...]struct {
		err error
		why counters.Closing
	}{
		{netio.ErrIdle, counters.Idle}, {netio.ErrExcess, counters.Excess}, {netio.ErrStopped, counters.Stopped}, {netio.ErrPanic, counters.Panicked}, {errPanic, counters.Panicked},
		{errAcksZero, counters.AcksZero}, {netio.ErrHalfFrame, counters.HalfFrame}, {netio.ErrFrameSize, counters.FrameSize},
		{errShortFrame, counters.ShortFrame}, {errUnknownAPI, counters.UnknownAPI}, {errUnknownVersion, counters.UnknownVersion},
		{errMalformed, counters.Malformed},
	} {
		if errors.Is(err, r.err) {
			return r.why
		}
	}
	return counters.BySocket
}
