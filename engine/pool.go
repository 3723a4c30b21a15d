package engine

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
)

// pool runs functions on at most max goroutines, which exist only while there is work.
type pool struct {
	max int

	mu      sync.Mutex // guards what follows
	queue   []func()
	running int
	idle    sync.WaitGroup
}

func (p *pool) run(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, f)
	if p.running < p.max {
		p.running++
		p.idle.Add(1)
		go p.worker()
	}
}

func (p *pool) worker() {
	defer p.idle.Done()
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			p.running--
			p.mu.Unlock()
			return
		}
		f := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		p.mu.Unlock()
		f()
	}
}

// wait blocks until the queue is empty and nothing runs.
func (p *pool) wait() { p.idle.Wait() }

func randomHex() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
