package netio

import (
	"math/bits"
	"sync"
)

// minBuffer is the smallest buffer of a partial frame, in bytes.
const minBuffer = 512

// inbuf holds bytes of one connection that arrived but were not delivered: a
// partial frame, or whatever was left when the connection was held or paused.
type inbuf struct {
	b  []byte // received bytes, sizes included
	at int    // b[:at] was delivered already
}

// bufferPools hands out inbufs by size class: four classes per doubling, so that
// a request slightly over a power of two wastes a quarter and not a half.
type bufferPools [96]sync.Pool

// classOf gives the index and the capacity of the smallest class that holds n bytes.
func classOf(n int) (index, size int) {
	if n <= minBuffer {
		return 0, minBuffer
	}
	shift := bits.Len(uint(n-1)) - 3
	quarters := (n-1)>>shift + 1
	return (shift-7)*4 + quarters - 4, quarters << shift
}

// get returns an empty inbuf with room for at least n bytes.
func (p *bufferPools) get(n int) *inbuf {
	index, size := classOf(n)
	if b, ok := p[index].Get().(*inbuf); ok {
		return b
	}
	return &inbuf{b: make([]byte, 0, size)}
}

// put gives b back; the caller must not touch it afterwards.
func (p *bufferPools) put(b *inbuf) {
	index, _ := classOf(cap(b.b))
	b.b, b.at = b.b[:0], 0
	p[index].Put(b)
}
