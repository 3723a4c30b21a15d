package logtool

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"
)

// output is where a command prints: text for people, or JSON, one object a line.
type output struct {
	w        *bufio.Writer
	json     bool
	problems int
	err      error // of the first write that failed
}

func newOutput(w io.Writer, json bool) *output { return &output{w: bufio.NewWriter(w), json: json} }

// flush writes what is buffered and returns the first error of all writes.
func (o *output) flush() error {
	if err := o.w.Flush(); o.err == nil {
		o.err = err
	}
	return o.err
}

// text prints a line, unless the output is JSON.
func (o *output) text(format string, args ...any) {
	if !o.json {
		fmt.Fprintf(o.w, format+"\n", args...)
	}
}

// object prints a line of JSON, unless the output is text.
func (o *output) object(v any) {
	if !o.json {
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("BUG: %T cannot be written as JSON: %v", v, err))
	}
	o.w.Write(append(b, '\n'))
}

type problemObject struct {
	Type     string `json:"type"`
	File     string `json:"file"`
	Position int64  `json:"position"`
	Problem  string `json:"problem"`
}

// report tells of a problem and counts it.
func (o *output) report(p *Problem) {
	o.problems++
	o.text("PROBLEM %s", p.Error())
	o.object(problemObject{"problem", p.File, p.Position, p.What})
}

// columns prints rows of cells under a heading. Widths are fixed, so that nothing is held back: a log may be large.
type columns struct {
	o      *output
	widths []int
}

func (o *output) columns(widths []int, names ...string) columns {
	c := columns{o, widths}
	c.row(names...)
	return c
}

func (c columns) row(cells ...string) {
	if c.o.json {
		return
	}
	for i, cell := range cells {
		if i == len(cells)-1 {
			fmt.Fprintln(c.o.w, cell)
		} else {
			fmt.Fprintf(c.o.w, "%-*s ", c.widths[i], cell)
		}
	}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// span writes a range of offsets.
func span(first, last int64) string {
	if first == last {
		return number(first)
	}
	return number(first) + "-" + number(last)
}

// clock writes a timestamp of milliseconds since 1970; -1 is none.
func clock(ms int64) string {
	if ms == -1 {
		return "-"
	}
	if ms < 0 || ms > 253402300799999 { // after the year 9999 there is no such notation
		return number(ms)
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// readable writes bytes for people: text in quotes, other bytes in hex, null as null.
func readable(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case utf8.Valid(b):
		return strconv.Quote(string(b))
	}
	return "0x" + hex.EncodeToString(b)
}
