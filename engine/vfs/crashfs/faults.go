package crashfs

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Faults are rules that make operations fail, by text. FS puts them before a file system. The grammar:
//
//	rules  = rule { ( ";" | newline ) rule }
//	rule   = [ nth ] op [ "of" glob ] [ "after" size ] ":" effect
//	nth    = "1st" | "2nd" | "3rd" | "4th" …    that match of the rule only; with a plus ("3rd+") it and all later ones;
//	                                            without nth: every one
//	op     = "open" | "create" | "read" | "map" | "write" | "truncate" | "allocate" | "zero" | "sync" | "fdatasync" (the same)
//	       | "rename" | "remove" | "mkdir" | "syncdir" | "syncfs" | "space" (write or allocate) | "any"
//	glob   = as path.Match has it, for as many last parts of the name as it has itself: "*.log", "t-0/*.log"
//	size   = number [ "KiB" | "MiB" | "GiB" ]   the rule begins to match when files have grown by so much through matching
//	                                            operations, and does not let them grow further
//	effect = errno | "short" [ errno ] | "slow" duration
//	errno  = "EIO" | "ENOSPC" | "EROFS" | "EDQUOT" | "EMFILE" | "EACCES" | "ENOENT"
//
// An operation that fails is not done. Three exceptions: "short" (of writes) writes the first half and then fails, with ENOSPC if
// no errno is given; a failed sync takes the data for written (see Disk); "slow" does the operation after the time. Of several
// rules that match an operation, each counts it, every slow one acts, and the first that fails it.
//
// Short forms: "short write [of glob]" is "1st write …: short"; "ENOSPC after 10 MiB [of glob]" is "space … after 10 MiB: ENOSPC";
// "slow sync [of glob] 5ms" is "sync …: slow 5ms", and likewise for other operations.
type Faults struct {
	mu    sync.Mutex // guards all
	rules []*rule
	fired int
}

type rule struct {
	text     string
	from, to int64 // matches that act; to 0: no end
	op, glob string
	after    int64 // bytes, -1: at once
	err      syscall.Errno
	short    bool
	slow     time.Duration

	seen, grown int64
}

var errnos = map[string]syscall.Errno{
	"EIO": syscall.EIO, "ENOSPC": syscall.ENOSPC, "EROFS": syscall.EROFS, "EDQUOT": syscall.EDQUOT,
	"EMFILE": syscall.EMFILE, "EACCES": syscall.EACCES, "ENOENT": syscall.ENOENT,
}

const opSpace, opAny = "space", "any"

var ops = map[string]bool{
	"open": true, OpCreate: true, "read": true, "map": true, OpWrite: true, OpTruncate: true, OpAllocate: true, OpZero: true,
	OpSync: true, OpRename: true, OpRemove: true, OpMkdir: true, OpSyncDir: true, OpSyncFS: true, opSpace: true, opAny: true,
}

// ParseRules reads rules; none is fine.
func ParseRules(text string) (*Faults, error) {
	f := &Faults{}
	return f, f.Set(text)
}

// Rules is ParseRules for rules that are part of the program: it panics on bad ones.
func Rules(text string) *Faults {
	f, err := ParseRules(text)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return f
}

// Set replaces the rules; counts begin again. On an error the old ones stay.
func (f *Faults) Set(text string) error {
	var rules []*rule
	for _, t := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		if t = strings.TrimSpace(t); t == "" {
			continue
		}
		r, err := parseRule(t)
		if err != nil {
			return fmt.Errorf("crashfs: rule %q: %w", t, err)
		}
		rules = append(rules, r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules, f.fired = rules, 0
	return nil
}

// Fired is how many operations were failed or slowed since Set.
func (f *Faults) Fired() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// expand writes out a short form.
func expand(text string) string {
	w := strings.Fields(text)
	n := len(w)
	switch {
	case strings.Contains(text, ":") || n < 2:
		return text
	case w[0] == "short":
		return "1st " + strings.Join(w[1:], " ") + ": short"
	case w[0] == "slow":
		return strings.Join(w[1:n-1], " ") + ": slow " + w[n-1]
	case errnos[w[0]] != 0:
		return "space " + strings.Join(w[1:], " ") + ": " + w[0]
	}
	return text
}

func parseRule(text string) (*rule, error) {
	r := &rule{text: text, from: 1, after: -1}
	sel, effect, ok := strings.Cut(expand(text), ":")
	if !ok {
		return nil, fmt.Errorf("no effect: want \"operation: effect\"")
	}
	w := strings.Fields(sel)
	if len(w) > 0 && w[0][0] >= '0' && w[0][0] <= '9' {
		nth := strings.TrimSuffix(w[0], "+")
		n, err := strconv.ParseInt(strings.TrimRight(nth, "stndrh"), 10, 64)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("bad count %q", w[0])
		}
		if r.from = n; nth == w[0] {
			r.to = n
		}
		w = w[1:]
	}
	if len(w) == 0 {
		return nil, fmt.Errorf("no operation")
	}
	if r.op = w[0]; r.op == "fdatasync" {
		r.op = OpSync
	}
	if !ops[r.op] {
		return nil, fmt.Errorf("unknown operation %q", w[0])
	}
	if err := r.parseWhere(w[1:]); err != nil {
		return nil, err
	}
	return r, r.parseEffect(strings.Fields(effect))
}

func (r *rule) parseWhere(w []string) error {
	for len(w) > 0 {
		switch {
		case w[0] == "of" && len(w) > 1:
			r.glob = w[1]
			if _, err := path.Match(r.glob, ""); err != nil {
				return err
			}
			w = w[2:]
		case w[0] == "after" && len(w) > 1:
			n, err := strconv.ParseInt(w[1], 10, 64)
			if err != nil || n < 0 {
				return fmt.Errorf("bad size %q", w[1])
			}
			w = w[2:]
			if shift := unitShift(w); shift > 0 {
				n, w = n<<shift, w[1:]
			}
			r.after = n
		default:
			return fmt.Errorf("unexpected %q", w[0])
		}
	}
	return nil
}

func unitShift(w []string) int {
	if len(w) == 0 {
		return 0
	}
	return map[string]int{"KiB": 10, "MiB": 20, "GiB": 30}[w[0]]
}

func (r *rule) parseEffect(w []string) (err error) {
	switch {
	case len(w) == 2 && w[0] == "slow":
		if r.slow, err = time.ParseDuration(w[1]); err == nil && r.slow < 0 {
			err = fmt.Errorf("bad duration %q", w[1])
		}
		return err
	case len(w) > 0 && w[0] == "short":
		if r.op != OpWrite && r.op != opSpace && r.op != opAny {
			return fmt.Errorf("only writes can be short")
		}
		r.short, r.err = true, syscall.ENOSPC
		if w = w[1:]; len(w) == 0 {
			return nil
		}
	}
	if len(w) == 1 && errnos[w[0]] != 0 {
		r.err = errnos[w[0]]
		return nil
	}
	return fmt.Errorf("unknown effect %q", strings.Join(w, " "))
}

// matches reports whether the rule is about the operation.
func (r *rule) matches(op string, names []string) bool {
	if r.op != op && r.op != opAny && !(r.op == opSpace && (op == OpWrite || op == OpAllocate)) {
		return false
	}
	if r.glob == "" {
		return true
	}
	for _, name := range names {
		parts := strings.Split(path.Clean(name), "/")
		if n := strings.Count(r.glob, "/") + 1; n < len(parts) {
			parts = parts[len(parts)-n:]
		}
		if ok, _ := path.Match(r.glob, strings.Join(parts, "/")); ok {
			return true
		}
	}
	return false
}

// acts counts the operation, which grows a file by that much.
func (r *rule) acts(growth int64) bool {
	if r.after >= 0 && r.grown+growth <= r.after {
		r.grown += growth
		return false
	}
	if r.after >= 0 && growth == 0 {
		return false
	}
	r.seen++
	return r.seen >= r.from && (r.to == 0 || r.seen <= r.to)
}

// verdict is what becomes of one operation.
type verdict struct {
	slow  time.Duration
	err   error
	short bool
}

// judge asks the rules about an operation; growth is asked for when a rule needs it.
func (f *Faults) judge(op string, growth func() int64, names ...string) (v verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rules {
		if !r.matches(op, names) {
			continue
		}
		var n int64
		if r.after >= 0 && growth != nil {
			n = growth()
		}
		if !r.acts(n) {
			continue
		}
		v.slow += r.slow
		if r.err != 0 && v.err == nil {
			v.err, v.short = r.err, r.short && op == OpWrite
		}
	}
	if v != (verdict{}) {
		f.fired++
	}
	return v
}
