package record

import (
	"bytes"
	"errors"
	"fmt"
	"os"
)

// ErrNoMarks is returned for a document without the lines between which a generated part stands.
var ErrNoMarks = errors.New("no lines between which the generated part stands")

// Marks are those lines for a part of the given name.
func Marks(part string) (begin, end string) {
	return "<!-- " + part + ": begin -->", "<!-- " + part + ": end -->"
}

// Splice replaces the part of the given name in a document, and returns whether the document changed.
func Splice(document, part, text string) (changed bool, err error) {
	old, err := os.ReadFile(document)
	if err != nil {
		return false, err
	}
	first, last := Marks(part)
	begin, end := bytes.Index(old, []byte(first)), bytes.Index(old, []byte(last))
	if begin < 0 || end < begin {
		return false, fmt.Errorf("%s: part %s: %w", document, part, ErrNoMarks)
	}
	var b bytes.Buffer
	b.Write(old[:begin])
	fmt.Fprintf(&b, "%s\n\n%s\n", first, text)
	b.Write(old[end:])
	if bytes.Equal(b.Bytes(), old) {
		return false, nil
	}
	return true, os.WriteFile(document, b.Bytes(), 0o644)
}
