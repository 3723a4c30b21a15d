// Package logging is the broker's logger, and the levels that operators change while it runs (DescribeConfigs and
// IncrementalAlterConfigs of a BROKER_LOGGER).
//
// What it is not: it decides no format but one, text lines on standard error, and it keeps no files.
//
// Invariants: loggers have fixed names; the level of a name that was not set follows the root's.
package logging

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
)

// Root is the logger that the others follow.
const Root = "root"

// names of the loggers, one for each part of the broker that logs.
var names = [...]string{Root, "kaas.engine", "kaas.groups", "kaas.netio", "kaas.server", "kaas.transactions"}

// Log levels by Apache's names. slog has no FATAL and no TRACE; they are a step beyond ERROR and DEBUG.
var levels = []struct {
	name  string
	level slog.Level
}{
	{"TRACE", slog.LevelDebug - 4},
	{"DEBUG", slog.LevelDebug},
	{"INFO", slog.LevelInfo},
	{"WARN", slog.LevelWarn},
	{"ERROR", slog.LevelError},
	{"FATAL", slog.LevelError + 4},
}

// Levels holds the level of every logger.
type Levels struct {
	set [len(names)]atomic.Pointer[slog.Level] // by index in names; nil: follows the root
	out slog.Handler
}

// New makes the loggers, writing to w; the root starts at level.
func New(w io.Writer, level slog.Level) *Levels {
	l := &Levels{out: slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug - 4})}
	l.set[0].Store(&level)
	return l
}

// Logger returns the logger of a name ("kaas.engine"). It panics for a name that is not in the list.
func (l *Levels) Logger(name string) *slog.Logger {
	at := slices.Index(names[:], name)
	if at < 0 {
		panic("BUG: no logger " + name)
	}
	return slog.New(&handler{Handler: l.out, levels: l, at: at}).With("logger", name)
}

// level is what counts for the logger at an index.
func (l *Levels) level(at int) slog.Level {
	if v := l.set[at].Load(); v != nil {
		return *v
	}
	return *l.set[0].Load()
}

// Names lists the loggers.
func (l *Levels) Names() []string { return names[:] }

// LevelNames lists the levels that Set takes, in the order of the alphabet.
func LevelNames() []string {
	var out []string
	for _, v := range levels {
		out = append(out, v.name)
	}
	slices.Sort(out)
	return out
}

// Get returns the level of a logger by Apache's name; own says whether it was set for it. ok is false for an unknown logger.
func (l *Levels) Get(name string) (level string, own, ok bool) {
	at := slices.Index(names[:], name)
	if at < 0 {
		return "", false, false
	}
	now := l.level(at)
	for _, v := range levels {
		if v.level <= now {
			level = v.name
		}
	}
	return level, l.set[at].Load() != nil, true
}

// Valid tells whether a logger and a level exist.
func (l *Levels) Valid(name, level string) (knownName, knownLevel bool) {
	return slices.Contains(names[:], name), slices.Contains(LevelNames(), level)
}

// Set changes the level of a logger; both must be valid.
func (l *Levels) Set(name, level string) {
	for _, v := range levels {
		if v.name == level {
			l.set[slices.Index(names[:], name)].Store(&v.level)
		}
	}
}

// Unset lets a logger follow the root again. The root has nothing to follow and keeps its level.
func (l *Levels) Unset(name string) {
	if name != Root {
		l.set[slices.Index(names[:], name)].Store(nil)
	}
}

// handler filters by the level in force.
type handler struct {
	slog.Handler
	levels *Levels
	at     int
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.levels.level(h.at)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(as []slog.Attr) slog.Handler {
	return &handler{Handler: h.Handler.WithAttrs(as), levels: h.levels, at: h.at}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{Handler: h.Handler.WithGroup(name), levels: h.levels, at: h.at}
}
