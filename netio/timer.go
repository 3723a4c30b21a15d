package netio

// Timer calls Fn on its loop at a time set by Loop.SetTimer. It lives inside the
// object it serves; setting and stopping it allocates nothing. Fn is set once,
// before the first use.
type Timer struct {
	Fn    func()
	at    int64
	index int // position in the heap plus one; 0: not set
}

// Set tells whether the timer is waiting for its time.
func (t *Timer) Set() bool { return t.index != 0 }

// SetTimer makes t due at the given time (milliseconds on the clock of
// Loop.Now). A timer that was set is moved. On the loop only.
func (l *Loop) SetTimer(t *Timer, at int64) {
	t.at = at
	if t.index == 0 {
		l.timers = append(l.timers, t)
		t.index = len(l.timers)
	}
	l.timers.fix(t.index - 1)
}

// StopTimer unsets t; nothing happens if it was not set. On the loop only.
func (l *Loop) StopTimer(t *Timer) {
	if t.index != 0 {
		l.timers.remove(t.index - 1)
	}
}

// runTimers calls the timers that are due. A timer set again for a time that is
// due as well waits for the next round, so a callback cannot keep the loop here.
func (l *Loop) runTimers() {
	for n := len(l.timers); n > 0 && len(l.timers) > 0 && l.timers[0].at <= l.now; n-- {
		t := l.timers[0]
		l.timers.remove(0)
		t.Fn()
	}
}

// timerHeap is a binary heap by time; each timer knows its position.
type timerHeap []*Timer

func (h timerHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

// fix restores the order around position i, whose time may have changed.
func (h timerHeap) fix(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].at <= h[i].at {
			break
		}
		h.swap(i, parent)
		i = parent
	}
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].at < h[least].at {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

func (h *timerHeap) remove(i int) {
	old := *h
	last := len(old) - 1
	old[i].index = 0
	if i != last {
		old[i] = old[last]
		old[i].index = i + 1
	}
	old[last] = nil
	*h = old[:last]
	if i != last {
		h.fix(i)
	}
}
