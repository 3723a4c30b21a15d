package engine

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// contained makes an error of a panic in f, which looks into batches through a Format: bytes of strangers. f holds no lock that it does not
// give up by defer, and changes nothing that its caller keeps after an error. What panics with BUG goes on and ends the process, and so does
// every panic elsewhere in the engine: a state that cannot be is not written on from, and a start after a kill loses nothing.
func (l *Log) contained(f func() error) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if s, ok := v.(string); ok && strings.HasPrefix(s, "BUG") {
			panic(v)
		}
		l.e.cfg.Logger.Error("panic over the batches of a log", "log", l.name(), "panic", v, "stack", string(debug.Stack()))
		err = fmt.Errorf("panic: %v", v)
	}()
	return f()
}
