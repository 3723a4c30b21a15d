package transcripts

// Comparing an answer with what Apache answered.
//
//	"${name}"        bound on first sight, equal from then on ("${name+1}": arithmetic on a bound number)
//	{"$any": x}      free; x is what Apache happened to say
//	{"$text": x}     free text for people (error messages); not compared
//	{"$oneOf": [..]} any one of these

import (
	"fmt"
	"maps"
)

type matcher struct {
	s         *session
	unordered map[string]bool
	diffs     []diff
}

func (m *matcher) fail(path string, want, got any) {
	m.diffs = append(m.diffs, diff{path, short(want), short(got)})
}

func short(v any) string {
	t := mustText(v)
	if len(t) > 300 {
		t = t[:300] + "..."
	}
	return t
}

func join(path, k string) string {
	if path == "" {
		return k
	}
	return path + "." + k
}

// match compares; path has real indexes, pat has [] for any index.
func (m *matcher) match(path, pat string, want, got any) {
	switch w := want.(type) {
	case *object:
		m.matchObject(path, pat, w, got)
	case []any:
		g, ok := got.([]any)
		if !ok {
			m.fail(path, want, got)
			return
		}
		if len(w) != len(g) {
			m.fail(path, fmt.Sprintf("%d elements %s", len(w), short(want)), fmt.Sprintf("%d elements %s", len(g), short(got)))
			return
		}
		if m.unordered[pat] {
			m.matchUnordered(path, pat, w, g)
			return
		}
		for i := range w {
			m.match(fmt.Sprintf("%s[%d]", path, i), pat+"[]", w[i], g[i])
		}
	case string:
		m.matchText(path, w, got)
	default:
		if mustText(want) != mustText(got) {
			m.fail(path, want, got)
		}
	}
}

func (m *matcher) matchObject(path, pat string, w *object, got any) {
	if len(w.K) == 1 {
		switch x := w.V[w.K[0]]; w.K[0] {
		case "$any", "$text":
			return
		case "$oneOf":
			for _, y := range x.([]any) {
				if m.try(path, pat, y, got) == nil {
					return
				}
			}
			m.fail(path, w, got)
			return
		}
	}
	g, ok := got.(*object)
	if !ok {
		m.fail(path, w, got)
		return
	}
	for _, k := range w.K {
		if k == "$only" {
			continue
		}
		x, ok := g.V[k]
		if !ok {
			m.fail(join(path, k), w.V[k], "<missing>")
			continue
		}
		m.match(join(path, k), join(pat, k), w.V[k], x)
	}
	if _, ok := w.V["$only"]; ok { // only the named fields are compared
		return
	}
	for _, k := range g.K {
		if _, ok := w.V[k]; !ok {
			m.fail(join(path, k), "<absent>", g.V[k])
		}
	}
}

func (m *matcher) matchText(path, w string, got any) {
	r := varRef.FindStringSubmatch(w)
	if r != nil && r[0] == w && r[2] == "" { // a name alone: bound now, or equal to what it is bound to
		have, bound := m.s.vars[r[1]]
		switch {
		case !bound && got == nil:
			m.fail(path, w, got)
		case !bound:
			m.s.vars[r[1]] = got
		case mustText(have) != mustText(got):
			m.fail(path, fmt.Sprintf("%s (= %s)", w, mustText(have)), got)
		}
		return
	}
	x, err := m.s.substText(w)
	if err != nil {
		m.fail(path, err.Error(), got)
		return
	}
	if mustText(x) != mustText(got) {
		m.fail(path, x, got)
	}
}

// try matches without keeping diffs; bindings are kept only on success.
func (m *matcher) try(path, pat string, want, got any) []diff {
	saved := maps.Clone(m.s.vars)
	sub := &matcher{s: m.s, unordered: m.unordered}
	sub.match(path, pat, want, got)
	if sub.diffs != nil {
		m.s.vars = saved
	}
	return sub.diffs
}

func (m *matcher) matchUnordered(path, pat string, want, got []any) {
	used := make([]bool, len(got))
next:
	for i, w := range want {
		var best []diff
		for j, g := range got {
			if used[j] {
				continue
			}
			d := m.try(fmt.Sprintf("%s[%d]", path, i), pat+"[]", w, g)
			if d == nil {
				used[j] = true
				continue next
			}
			if best == nil || len(d) < len(best) {
				best = d
			}
		}
		m.diffs = append(m.diffs, best...)
	}
}
