package schema

import (
	"embed"
	"fmt"
	"path"
	"strconv"
	"strings"
)

//go:embed defs/*.txt defs/errors.tsv
var defs embed.FS

// Load reads all tables, in the order of their names: API keys first, ascending.
func Load() ([]*File, error) {
	names, err := defs.ReadDir("defs")
	if err != nil {
		return nil, err
	}
	var files []*File
	for _, n := range names {
		name, isTable := strings.CutSuffix(n.Name(), ".txt")
		if !isTable {
			continue
		}
		text, err := defs.ReadFile(path.Join("defs", n.Name()))
		if err != nil {
			return nil, err
		}
		f, err := Parse(name, string(text))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// ErrorFact is one line of the table of error codes.
type ErrorFact struct {
	Code      int16
	Name      string // "UNKNOWN_TOPIC_OR_PARTITION"
	Retriable bool
	Meaning   string
}

// Go is the constant's name: "ErrUnknownTopicOrPartition".
func (e ErrorFact) Go() string {
	name := "Err"
	for _, word := range strings.Split(strings.ToLower(e.Name), "_") {
		name += upperFirst(word)
	}
	return name
}

// LoadErrors reads the table of error codes, ascending from -1 without gaps.
func LoadErrors() ([]ErrorFact, error) {
	text, err := defs.ReadFile("defs/errors.tsv")
	if err != nil {
		return nil, err
	}
	return parseErrors(string(text))
}

func parseErrors(text string) ([]ErrorFact, error) {
	var facts []ErrorFact
	for i, line := range strings.Split(strings.TrimSpace(text), "\n")[1:] {
		cols := strings.Split(line, "\t")
		if len(cols) != 5 {
			return nil, fmt.Errorf("errors.tsv:%d: %d columns", i+2, len(cols))
		}
		code, err := strconv.ParseInt(cols[0], 10, 16)
		if err != nil || int(code) != i-1 {
			return nil, fmt.Errorf("errors.tsv:%d: code %s out of order", i+2, cols[0])
		}
		facts = append(facts, ErrorFact{Code: int16(code), Name: cols[1], Retriable: cols[2] == "yes", Meaning: cols[4]})
	}
	return facts, nil
}
