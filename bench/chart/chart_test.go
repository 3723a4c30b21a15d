package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// wellFormed counts the elements of a drawing by name.
func wellFormed(t *testing.T, svg string) map[string]int {
	t.Helper()
	seen := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return seen
		}
		if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
		if e, ok := token.(xml.StartElement); ok {
			seen[e.Name.Local]++
		}
	}
}

func TestBars(t *testing.T) {
	svg := Bars("A <b>", "MB/s", []Group{{"one", []Bar{{"x", 100, 90, 110}, {"y", 50, 50, 50}}}, {"two", []Bar{{"x", 0, 0, 0}}}})
	seen := wellFormed(t, svg)
	if seen["rect"] != 1+2+3 || seen["line"] != 1 { // page, legend, bars; a whisker only where rounds differ
		t.Errorf("got %v", seen)
	}
	// The longest whisker takes all the room: 460 = 760-190-110 for 110.
	for _, want := range []string{"A &lt;b&gt;, MB/s", `width="418.2"`, `width="209.1"`, `width="0.0"`, ">100<", ">one<"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q in %s", want, svg)
		}
	}
	wellFormed(t, Bars("", "", nil))
}

func TestLines(t *testing.T) {
	svg := Lines("L", "s", "ms", []Line{{"p", []Point{{0, 0}, {10, 4}}}}, false)
	if seen := wellFormed(t, svg); seen["polyline"] != 1 {
		t.Errorf("got %v", seen)
	}
	if want := `points="70.0,315.0 740.0,55.0"`; !strings.Contains(svg, want) {
		t.Errorf("no %q in %s", want, svg)
	}
	// By nines: 0.9 lies halfway between 0 and 0.99.
	svg = Lines("L", "q", "ms", []Line{{"p", []Point{{0, 1}, {0.9, 1}, {0.99, 1}}}}, true)
	if want := `points="70.0,55.0 405.0,55.0 740.0,55.0"`; !strings.Contains(svg, want) {
		t.Errorf("no %q in %s", want, svg)
	}
	wellFormed(t, Lines("", "", "", nil, true))
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 999: "999", 1234: "1.23k", 5e6: "5M", 7.5e9: "7.5G", 0.012345: "0.0123"} {
		if got := Number(v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
}
