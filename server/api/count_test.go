package api

import (
	"errors"
	"fmt"
	"reflect"
	"syscall"
	"testing"

	"kaas/codec/api"
	"kaas/netio"
	"kaas/server/metrics/counters"
)

func newCounted() *counted {
	c := new(counted)
	c.init()
	return c
}

func TestErrorsOfAResponseAreCounted(t *testing.T) {
	c := newCounted()
	var p api.MetadataResponse
	p.Default()
	p.Topics = make([]api.MetadataResponseMetadataResponseTopic, 3)
	p.Topics[0].ErrorCode = api.ErrUnknownTopicOrPartition
	p.Topics[2].Partitions = make([]api.MetadataResponseMetadataResponsePartition, 4)
	p.Topics[2].Partitions[1].ErrorCode = api.ErrLeaderNotAvailable
	p.Topics[2].Partitions[3].ErrorCode = api.ErrLeaderNotAvailable
	c.errors(api.KeyMetadata, &p)
	v := api.ApiVersionsResponse{ErrorCode: api.ErrInvalidRequest}
	c.errors(api.KeyApiVersions, &v)
	got := map[string][]counters.ErrorCount{}
	for _, a := range c.set.APIs() {
		if a.NonZeroErrorCounts != nil {
			got[a.Name] = a.NonZeroErrorCounts
		}
	}
	want := map[string][]counters.ErrorCount{
		"Metadata":    {{Code: int16(api.ErrUnknownTopicOrPartition), Count: 1}, {Code: int16(api.ErrLeaderNotAvailable), Count: 2}},
		"ApiVersions": {{Code: int16(api.ErrInvalidRequest), Count: 1}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := testing.AllocsPerRun(100, func() { c.errors(api.KeyMetadata, &p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Every response that is served has a walk, and one for each place with a code in it.
func TestEveryServedResponseHasAWalk(t *testing.T) {
	for i := range served {
		key := served[i].key
		w := newCodeWalk(reflect.TypeOf(api.NewResponse(key)).Elem())
		if len(w.codes)+len(w.inner) == 0 {
			t.Errorf("no error code was found in the response of key %d", key)
		}
		if c := newCounted(); c.tags[key] != int32(i+1) {
			t.Errorf("key %d has tag %d, want %d", key, c.tags[key], i+1)
		}
	}
}

func TestClosingReasons(t *testing.T) {
	for _, c := range []struct {
		err  error
		want counters.Closing
	}{
		{nil, counters.ByPeer}, {syscall.ECONNRESET, counters.BySocket}, {errors.New("x"), counters.BySocket},
		{netio.ErrIdle, counters.Idle}, {netio.ErrStopped, counters.Stopped}, {netio.ErrPanic, counters.Panicked},
		{fmt.Errorf("%w: x", errPanic), counters.Panicked}, {errAcksZero, counters.AcksZero}, {netio.ErrHalfFrame, counters.HalfFrame},
		{netio.ErrFrameSize, counters.FrameSize}, {errShortFrame, counters.ShortFrame}, {fmt.Errorf("%w 9", errUnknownAPI), counters.UnknownAPI},
		{fmt.Errorf("%w: x", errUnknownVersion), counters.UnknownVersion}, {fmt.Errorf("%w: x: %w", errMalformed, errors.New("y")), counters.Malformed},
	} {
		if got := closingOf(c.err); got != c.want {
			t.Errorf("%v is counted as %v, want %v", c.err, got, c.want)
		}
	}
}

// BenchmarkErrors is what the counting of error codes costs an answer off the hot path.
func BenchmarkErrors(b *testing.B) {
	c := newCounted()
	var p api.MetadataResponse
	p.Topics = make([]api.MetadataResponseMetadataResponseTopic, 10)
	for i := range p.Topics {
		p.Topics[i].Partitions = make([]api.MetadataResponseMetadataResponsePartition, 10)
	}
	b.ReportAllocs()
	for range b.N {
		c.errors(api.KeyMetadata, &p)
	}
}
