package simulate

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var mutate = flag.Bool("mutants", false, "build the node with each mutant and see that it is killed (minutes)")

// mutant is the node with one change in its sources. There are none of a gate that only finds needs where there are none: each is
// looked at again when the record becomes the head, so they change nothing but the cost.
type mutant struct {
	file     string
	old, new string
	units    bool // may be killed by the tests of server/causal alone: few histories show it, if any
}

var mutants = []mutant{
	// The gate.
	{file: "gate.go", old: "if rows[at].frontier < e.N && at != self.index {", new: "if rows[at].frontier < e.N-1 && at != self.index {"},
	{file: "gate.go", old: "if rows[at].frontier < e.N && at != self.index {", new: "if false {"},
	{file: "gate.go", old: "m.sequence < e.N {", new: "m.sequence < e.N-1 {"},
	{file: "gate.go", old: "m.sequence < e.N {", new: "false {"},
	{file: "gate.go", old: "		if at = int(h.row); at == self.index {\n			continue\n		}\n", new: "		at = int(h.row)\n", units: true},
	{file: "gate.go", old: "	if len(clock.Sequences()) > 0 {\n		dst = n.unmetSequences(dst, self, clock)\n	}\n", new: ""},
	{file: "gate.go", old: "		k.set(&e.Key)\n		if uint(h.row) >= uint(len(rows)) || !rows[h.row].is(&k) {", new: "		k.set(&e.Key)\n		if uint(h.row) >= uint(len(rows)) {"},
	{file: "gate.go", old: "		k.set(&e.Key.Channel)\n		if uint(h.row) >= uint(len(rows)) || !rows[h.row].is(&k) {", new: "		k.set(&e.Key.Channel)\n		if uint(h.row) >= uint(len(rows)) {"},
	{file: "gate.go", old: "if uint(h.mark) >= uint(len(r.marks)) || r.marks[h.mark].sender != e.Key.Sender {", new: "if uint(h.mark) >= uint(len(r.marks)) {"},
	{file: "gate.go", old: "(at == 0 || rows[at-1].below(k)) && (at == len(rows) || k.below(&rows[at])) {", new: "(at == 0 || rows[at-1].below(k)) {"},
	{file: "gate.go", old: "(at == 0 || rows[at-1].below(k)) && (at == len(rows) || k.below(&rows[at])) {", new: "(at == len(rows) || k.below(&rows[at])) {"},
	{file: "gate.go", old: "at == len(rows) || !rows[at].is(k) {", new: "at == len(rows) {"},
	{file: "gate.go", old: "	return high\n", new: "	return min(high+1, len(rows))\n"},
	{file: "gate.go", old: "rows[middle].below(k) {", new: "!rows[middle].below(k) {"},
	{file: "gate.go", old: "if s[up].n <= w.n {", new: "if s[up].n >= w.n {"},
	{file: "gate.go", old: "(*h)[0].n <= upTo {", new: "(*h)[0].n < upTo {"},
	{file: "gate.go", old: "		if !w.met() {", new: "		if false {"},
	{file: "gate.go", old: "w.on.frontier >= w.n", new: "w.on.frontier >= w.n-1"},
	{file: "gate.go", old: "return w.mark.sequence >= w.n", new: "return w.mark.sequence >= w.n-1"},
	{file: "gate.go", old: "	n.wake(&c.waiting, to)\n", new: ""},
	{file: "gate.go", old: "	n.merged.RaiseOffset(c.id, to)\n", new: ""},
	{file: "gate.go", old: "	if m.sequence >= sequence {\n		return false\n	}\n", new: "", units: true},
	{file: "gate.go", old: "	n.wake(&m.waiting, sequence)\n", new: ""},
	{file: "gate.go", old: "ok && claimed <= sequence {", new: "ok && claimed >= 0 {"},
	// The stamp.
	{file: "stamp.go", old: "	into.Clock.CopyFrom(&n.merged)\n", new: "	into.Clock.Reset()\n"},
	{file: "stamp.go", old: "s.has, s.sent = true, n.base", new: "s.has, s.sent = true, 0"},
	{file: "stamp.go", old: "	n.merged.RaiseSequence(parsley.SequenceKey{Channel: dest, Sender: n.cfg.Sender}, s.sent)\n	n.touchSink(s)", new: "	n.touchSink(s)"},
	{file: "stamp.go", old: "	n.touchSink(s)\n", new: ""},
	{file: "stamp.go", old: "		s.sent++\n", new: ""},
	{file: "stamp.go", old: "		n.merged.RaiseOffset(dest, offset)\n", new: ""},
	{file: "stamp.go", old: "ok && claimed <= s.baseline {", new: "ok && claimed >= 0 {"},
	{file: "stamp.go", old: "	s.baseline = max(s.baseline, sequence)\n", new: "	s.baseline = s.sent\n"},
	{file: "stamp.go", old: "	n.merged.Merge(clock)\n", new: ""},
	{file: "stamp.go", old: "!ok || c.marks[i].sequence < e.N {", new: "!ok {"},
	{file: "stamp.go", old: "	if s == nil {\n		return true\n	}\n	sentSince", new: "	if s == nil {\n		return false\n	}\n	sentSince"},
	{file: "stamp.go", old: "return !sentSince && !seeded", new: "return !sentSince && (seeded || !seeded)", units: true},
	{file: "stamp.go", old: "return !sentSince && !seeded", new: "return (sentSince || !sentSince) && !seeded", units: true},
	{file: "stamp.go", old: "clock.RaiseOffset(e.Key.Channel, c.marks[i].mark.offset)", new: "_ = clock", units: true},
	{file: "stamp.go", old: "		m.RaiseOffset(c.id, c.frontier)\n		m.Merge(&c.advertised)\n	}\n	m.Merge(&n.carried)\n	for _, s := range n.sinks {\n		m.RaiseOffset(s.id, s.own)\n	}\n	n.normalise(m)",
		new: "		m.Merge(&c.advertised)\n	}\n	m.Merge(&n.carried)\n	for _, s := range n.sinks {\n		m.RaiseOffset(s.id, s.own)\n	}\n	n.normalise(m)"},
	{file: "stamp.go", old: "		m.Merge(&c.advertised)\n	}\n	m.Merge(&n.carried)\n	for _, s := range n.sinks {\n		m.RaiseOffset(s.id, s.own)\n	}\n	n.normalise(m)",
		new: "	}\n	m.Merge(&n.carried)\n	for _, s := range n.sinks {\n		m.RaiseOffset(s.id, s.own)\n	}\n	n.normalise(m)"},
	{file: "stamp.go", old: "	m.Merge(&n.carried)\n	for _, s := range n.sinks {\n		m.RaiseOffset(s.id, s.own)\n	}\n	n.normalise(m)", new: "	for _, s := range n.sinks {\n		m.RaiseOffset(s.id, s.own)\n	}\n	n.normalise(m)"},
	{file: "stamp.go", old: "		m.RaiseOffset(s.id, s.own)\n	}\n	n.normalise(m)", new: "	_ = s\n	}\n	n.normalise(m)"},
	{file: "stamp.go", old: "if s.has && s.sent > s.baseline {", new: "if false {"},
	// Receiving.
	{file: "receive.go", old: "r.Offset <= c.frontier || r.Offset <= c.queue.last && !n.cfg.Parity {", new: "r.Offset <= c.frontier {"},
	{file: "receive.go", old: "r.Offset <= c.frontier || r.Offset <= c.queue.last && !n.cfg.Parity {", new: "false {"},
	{file: "receive.go", old: "		n.advertise(c, &r.Clock)\n", new: ""},
	{file: "receive.go", old: "	if c.queue.len() == 0 {\n		n.advance(c, r.Offset-1)", new: "	{\n		n.advance(c, r.Offset-1)"},
	{file: "receive.go", old: "n.advance(c, r.Offset-1) //", new: "n.advance(c, r.Offset) //"},
	{file: "receive.go", old: "c.queue.len() > 0 || position-1 <= c.frontier {", new: "position-1 <= c.frontier {"},
	{file: "receive.go", old: "	c.known = max(c.known, position)\n", new: ""},
	{file: "receive.go", old: "if c.queue.len() == 0 && n.agenda.empty() {", new: "if n.agenda.empty() {"},
	{file: "receive.go", old: "	if r.Tagged {\n		n.raise(c, r.Sender, r.Sequence, r.Offset)\n	}\n	n.fold(c)", new: "	n.fold(c)"},
	{file: "receive.go", old: "c.advertises, c.advertisedDirty = true, true", new: "c.advertises = true"},
	{file: "receive.go", old: "	n.mergeStamp(clock)\n", new: ""},
	// The cascade.
	{file: "cascade.go", old: "n.advance(c, c.head.offset-1)", new: "n.advance(c, c.head.offset)"},
	{file: "cascade.go", old: "n.advance(c, c.known-1)", new: "n.advance(c, c.known)"},
	{file: "cascade.go", old: "n.advance(c, c.known-1)", new: "_ = c"},
	{file: "cascade.go", old: "	if tagged {\n		n.raise(c, sender, sequence, d.Offset)\n	}\n", new: "	_, _, _ = sender, sequence, tagged\n"},
	{file: "cascade.go", old: "if c.index > a.at {", new: "if true {", units: true},
	// A start.
	{file: "start.go", old: "s.own = max(s.own, e.Offset-1)", new: "s.own = max(s.own, e.Offset-3)"},
	{file: "start.go", old: "n.carried.RaiseOffset(e.Channel, e.Offset-1)", new: "n.carried.RaiseOffset(e.Channel, e.Offset-3)"},
	{file: "start.go", old: "			n.carried.RaiseOffset(id, c.frontier)\n", new: ""},
	{file: "start.go", old: "			n.carried.Merge(&c.advertised)\n", new: ""},
	{file: "start.go", old: "			v = max(v, s.own)\n", new: ""},
	{file: "start.go", old: "c.frontier, c.resume, c.frontierDirty = v, v+1, true", new: "c.frontier, c.resume, c.frontierDirty = v, v+2, true"},
	{file: "start.go", old: "		if c.queue.len() > 0 && (c.head.met() || c.head.offset-1 > c.frontier) {\n			n.agenda.add(c)\n		}\n", new: ""},
	{file: "start.go", old: "	s.has, s.baseline = true, s.sent\n", new: ""},
	// Sweeps.
	{file: "sweep.go", old: "return !ok || e.N > b\n", new: "return !ok || e.N > b+2\n"},
	{file: "sweep.go", old: "bound.RaiseOffset(s.Channel, s.Offset-1)", new: "bound.RaiseOffset(s.Channel, s.Offset+1)"},
	{file: "sweep.go", old: "bound.RaiseOffset(e.Channel, e.Offset-1)", new: "bound.RaiseOffset(e.Channel, e.Offset-4)"},
	{file: "sweep.go", old: "				clock.RaiseOffset(e.Key.Channel, end)\n", new: "				_ = end\n"},
	{file: "sweep.go", old: "case l.Found && l.Sequence == l.Claim.N: // on its way", new: "case false:"},
	{file: "sweep.go", old: "case l.Found && l.Offset <= c.frontier:", new: "case l.Found:"},
	{file: "sweep.go", old: "!l.Compacted && l.LastStable >= l.Watermark && l.LogStart > 0:", new: "false:"},
	{file: "sweep.go", old: "case !l.Compacted && l.LastStable", new: "case l.LastStable"},
	{file: "sweep.go", old: " && l.LastStable >= l.Watermark && l.LogStart > 0:", new: " && l.LogStart > 0:", units: true},
	{file: "sweep.go", old: "l.LastStable >= l.Watermark && l.LogStart > 0:", new: "l.LastStable >= l.Watermark:", units: true},
	{file: "sweep.go", old: "case c.seen && f.LogStart > f.Position:", new: "case false:"},
	{file: "sweep.go", old: "case c.queue.len() > 0 && f.LogStart > c.head.offset:", new: "case false:", units: true},
	// What is stored.
	{file: "flush.go", old: "	if c.frontierDirty {", new: "	if false {"},
	{file: "flush.go", old: "	if c.advertisedDirty {", new: "	if false {"},
	{file: "flush.go", old: "	for _, m := range c.dirtyMarks {", new: "	for _, m := range c.dirtyMarks[:0] {"},
	{file: "flush.go", old: "	if n.carriedDirty {", new: "	if false {"},
	{file: "flush.go", old: "parsley.Queue{Head: q.head, Tail: q.tail}", new: "parsley.Queue{Head: q.head, Tail: q.head}"},
	{file: "flush.go", old: "		f.w.Delete(n.key)\n		n.counts.StoreOps++\n	}\n	if q.fresh", new: "	}\n	if q.fresh"},
	{file: "queue.go", old: "	q.head++\n	q.dirty = true\n", new: "	q.head++\n"},
}

// TestMutants: every mutant is killed, by a scenario or, where it says so, by the tests of the node. Without -mutants it sees
// that the table is of the sources as they are.
func TestMutants(t *testing.T) {
	if len(mutants) < 60 {
		t.Errorf("only %d mutants", len(mutants))
	}
	for i, m := range mutants {
		src, err := os.ReadFile(filepath.Join("..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(src), m.old); n != 1 {
			t.Errorf("mutant %d: %d times in %s: %q", i, n, m.file, m.old)
			continue
		}
		if *mutate {
			t.Run(strings.TrimSpace(m.file+" "+strings.TrimSpace(m.old)), func(t *testing.T) { kill(t, m, string(src)) })
		}
	}
}

// kill builds the tests with the mutant in place of its file, and expects them to fail.
func kill(t *testing.T, m mutant, src string) {
	dir := t.TempDir()
	file, err := filepath.Abs(filepath.Join("..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	changed, overlay := filepath.Join(dir, m.file), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, []byte(strings.Replace(src, m.old, m.new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(pkg string, args ...string) (survived bool) {
		program := filepath.Join(dir, "tests")
		out, err := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", program, pkg).CombinedOutput()
		if err != nil {
			t.Fatalf("%q does not compile: %s", m.new, out)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // a mutant may never end
		defer cancel()
		cmd := exec.CommandContext(ctx, program, append(args, "-test.failfast")...)
		cmd.Dir = pkg
		return cmd.Run() == nil
	}
	if !run(".", "-test.run", "TestScenarios", "-hasty", "-lines", "0", "-seeds", "200") {
		return
	}
	if !m.units || run("..") {
		t.Errorf("%q lives", m.new)
	}
}
