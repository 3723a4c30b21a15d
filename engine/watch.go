package engine

import (
	"sync"
	"sync/atomic"
)

// Watch is told whenever the high watermark or last stable offset of a log moved, or the log was deleted or went offline.
// It is embedded in what waits (a parked fetch) and costs no allocation. Fn is called from any goroutine, with a lock of
// the watch list held: it must be cheap, and must not call Watch or Unwatch.
type Watch struct {
	Fn         func(l *Log)
	prev, next *Watch
	on         *Log
}

type watchList struct {
	n    atomic.Int32
	mu   sync.Mutex // guards head and the links
	head *Watch
}

// Watch registers w until Unwatch. What happened before is not told: look at Offsets after it.
func (l *Log) Watch(w *Watch) {
	l.watch.mu.Lock()
	defer l.watch.mu.Unlock()
	if w.on != nil {
		panic("BUG: a Watch can watch one log at a time")
	}
	w.on, w.next, w.prev = l, l.watch.head, nil
	if w.next != nil {
		w.next.prev = w
	}
	l.watch.head = w
	l.watch.n.Add(1)
}

// Unwatch ends it; afterwards Fn is not running and will not be called. A Watch that is not registered is left alone.
func (l *Log) Unwatch(w *Watch) {
	l.watch.mu.Lock()
	defer l.watch.mu.Unlock()
	if w.on != l {
		return
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.watch.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.on, w.prev, w.next = nil, nil, nil
	l.watch.n.Add(-1)
}

func (w *watchList) notify(l *Log) {
	if w.n.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := w.head; i != nil; i = i.next {
		i.Fn(l)
	}
}
