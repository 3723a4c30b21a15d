package history

import (
	"slices"
	"strings"
	"testing"
)

// parse reads a log: a0 is number 0 of transaction a, C and A end what is open; x is of nobody. All are of one producer.
func parse(text string) (log []Record) {
	for _, w := range strings.Fields(text) {
		switch w {
		case "C", "A":
			log = append(log, Record{Marker: true, Commit: w == "C", Txn: -1})
		case "x":
			log = append(log, Record{Txn: -1})
		default:
			log = append(log, Record{Txn: int(w[0] - 'a'), N: int(w[1] - '0')})
		}
	}
	return log
}

func kinds(faults []Fault) string {
	var out []string
	for _, f := range faults {
		out = append(out, string(f.Kind))
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ", ")
}

// The judge proves nothing if it sees nothing. Two transactions, each of which sent two records to each of two partitions and had one of them
// acknowledged.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		what string
		a    Txn
		logs [2]string
		want string
	}{
		{"committed", Txn{AskedCommit: true, Told: Committed}, [2]string{"a0 a1 C", "a0 a1 C b0 A"}, ""},
		{"aborted", Txn{Told: Aborted}, [2]string{"a0 a1 A", "a0 A"}, ""},
		{"committed, told or not", Txn{AskedCommit: true}, [2]string{"a0 C", "a0 C"}, ""},
		{"aborted, asked to commit and not told", Txn{AskedCommit: true}, [2]string{"a0 A", "a0 A"}, ""},
		{"aborted, though its commit was asked", Txn{AskedCommit: true, Told: Aborted}, [2]string{"a0 A", "a0 A"}, ""},
		{"aborted with a gap", Txn{}, [2]string{"a1 A", "a0 A"}, ""},
		{"not there at all", Txn{AskedCommit: true}, [2]string{"", ""}, ""},
		{"lost in one partition", Txn{AskedCommit: true, Told: Committed}, [2]string{"a0 C", ""}, "lost write"},
		{"lost in both", Txn{AskedCommit: true, Told: Committed}, [2]string{"", ""}, "lost write"},
		{"lost in one, and not told", Txn{AskedCommit: true}, [2]string{"a0 C", ""}, "lost write"},
		{"a gap", Txn{AskedCommit: true}, [2]string{"a0 C", "a1 C"}, "lost write"},
		{"aborted after all", Txn{AskedCommit: true, Told: Committed}, [2]string{"a0 A", "a0 A"}, "lost write"},
		{"torn", Txn{AskedCommit: true}, [2]string{"a0 A", "a0 C"}, "torn transaction"},
		{"torn within a partition", Txn{AskedCommit: true}, [2]string{"a0 A a1 C", "a0 C"}, "torn transaction"},
		{"committed after all", Txn{AskedCommit: true, Told: Aborted}, [2]string{"a0 C", "a0 C"}, "aborted read (G1a)"},
		{"committed by nobody", Txn{}, [2]string{"a0 C", "a0 C"}, "aborted read (G1a)"},
		{"open", Txn{}, [2]string{"a0", "a0 A"}, "stuck LSO"},
		{"open behind an end", Txn{}, [2]string{"a0 A a1", ""}, "stuck LSO"},
		{"twice", Txn{AskedCommit: true}, [2]string{"a0 a0 C", "a0 C"}, "duplicate"},
		{"twice and aborted", Txn{}, [2]string{"a0 a0 A", "a0 A"}, "duplicate"},
		{"out of order", Txn{}, [2]string{"a0 a1 a0 A", "a0 A"}, "reordered"},
		{"more than was sent", Txn{}, [2]string{"a0 a1 a2 A", "a0 A"}, "invented"},
		{"of nobody", Txn{}, [2]string{"x A", "a0 A"}, "invented"},
	} {
		a, b := c.a, Txn{Name: "b", Sent: map[int32]int{0: 2, 1: 2}}
		a.Name, a.Sent, a.Acked = "a", b.Sent, map[int32]int{0: 1, 1: 1}
		v := Judge([]*Txn{&a, &b}, map[int32][]Record{0: parse(c.logs[0]), 1: parse(c.logs[1])})
		if got := kinds(v.Faults); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

func TestReader(t *testing.T) {
	for _, c := range []struct {
		seen  string
		whole bool
		want  string
	}{
		{"a0 a1 c0", true, ""},
		{"a0", false, ""},
		{"", false, ""},
		{"a0 a1", true, "lost write"},
		{"a0 c0", false, "lost write"},
		{"a1", false, "lost write"},
		{"a0 a0", false, "duplicate"},
		{"a0 a1 a0", false, "reordered"},
		{"a0 a1 b0", false, "aborted read (G1a)"},
		{"a0 a1 d0", false, "aborted read (G1a)"},
		{"x", false, "aborted read (G1a)"},
	} {
		var txns []*Txn
		for i := range 4 {
			txns = append(txns, &Txn{Name: string(rune('a' + i)), AskedCommit: true, Sent: map[int32]int{0: 2}})
		}
		v := Judge(txns, map[int32][]Record{0: parse("a0 a1 C b0 A c0 C d0")})
		if got := kinds(v.Faults); got != "stuck LSO" {
			t.Fatalf("the log alone: %q", got)
		}
		if got := len(v.Committed(0)); got != 3 {
			t.Fatalf("%d records are committed, want 3", got)
		}
		v.Faults = nil
		if v.Reader("r", 0, parse(c.seen), c.whole); kinds(v.Faults) != c.want {
			t.Errorf("%q: %q, want %q", c.seen, kinds(v.Faults), c.want)
		}
	}
}
