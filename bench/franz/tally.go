package franz

import (
	"sync"
	"time"

	"kaas/bench/load"
)

// tally counts for all clients of a run.
type tally struct {
	begun  time.Time
	warm   time.Duration // from begun on; nothing counts before
	length time.Duration // 0: no end by time
	limits load.Limits
	polls  bool          // the time of a poll is a latency
	done   chan struct{} // closed when a limit is reached or the run has failed

	mu       sync.Mutex // guards what follows
	closed   bool
	latency  *load.Recorder
	late     *load.Recorder
	requests int64
	records  int64
	bytes    int64
	cpu      float64 // when the measured part began
	counting bool
	ended    time.Duration // of the last that was counted
	sampled  time.Duration
	err      error
	progress load.Progress
}

func newTally(c *Config) *tally {
	return &tally{
		begun: time.Now(), warm: c.WarmUp, length: c.Duration, limits: c.Limits, done: make(chan struct{}),
		latency: load.NewRecorder(), late: load.NewRecorder(), progress: c.Progress, cpu: load.CPUSeconds(), counting: c.WarmUp == 0,
	}
}

func (t *tally) elapsed() time.Duration { return time.Since(t.begun) - t.warm }

// over says whether the time of the run has come, or somebody stops it.
func (t *tally) over() bool {
	select {
	case <-t.done:
		return true
	default:
	}
	return t.length > 0 && t.elapsed() >= t.length || t.limits.Stop != nil && t.limits.Stop.Load()
}

func (t *tally) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
	t.close()
}

// close is called with mu held.
func (t *tally) close() {
	if !t.closed {
		t.closed = true
		close(t.done)
	}
}

// add counts n records of so many bytes; latency is in nanoseconds, and 0 when there is none.
func (t *tally) add(n int, bytes int64, latency time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.elapsed()
	if now < 0 {
		return
	}
	if !t.counting {
		t.counting, t.cpu = true, load.CPUSeconds()
		t.late.Reset()
	}
	t.requests++
	t.records += int64(n)
	t.bytes += bytes
	t.ended = now
	if latency > 0 {
		t.latency.Record(int64(latency))
	}
	if now-t.sampled >= time.Second {
		t.sampled = now
		t.latency.Sample(int64(now), t.requests, t.bytes)
		if t.progress != nil {
			t.progress(now, t.requests, t.bytes)
		}
	}
	l := &t.limits
	if l.Records > 0 && t.records >= l.Records || l.Bytes > 0 && t.bytes >= l.Bytes || l.Requests > 0 && t.requests >= l.Requests {
		t.close()
	}
}

func (t *tally) wasLate(by time.Duration) {
	t.mu.Lock()
	t.late.Record(int64(by))
	t.mu.Unlock()
}

// result is called when all clients have ended.
func (t *tally) result(kind string, clients int, open bool) (load.Result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := load.Result{
		Kind: kind, Client: Name, Connections: clients, Seconds: t.ended.Seconds(), Requests: t.requests, Records: t.records, Bytes: t.bytes,
		ClientCPU: load.CPUSeconds() - t.cpu, OpenLoop: open,
	}
	if open {
		var late load.Result
		t.late.Finish(&late)
		r.Late = late.Latency
	}
	t.latency.Finish(&r)
	return r, t.err
}

// Name of this client in results.
const Name = "franz-go"
