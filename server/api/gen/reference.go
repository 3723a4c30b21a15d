package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"regexp"
	"strings"

	"kaas/codec/api"
	server "kaas/server/api"
)

const referenceHead = `<!-- Made by go generate ./server/api from the handlers' comments. Do not edit. -->

# API reference

What each API does here, by key, and where it deviates from Apache Kafka 3.7.2. What is not named as a deviation is meant to be as in
Apache, and the [recorded answers of an Apache broker](../server/transcripts/README.md) test it; where it is not, that is a defect. All versions
of all APIs are in the [matrix](api-matrix.md).

`

// opening is how the comment that opens a handler's file begins: "Produce, key 0, v3-v10." and the versions' changes. A KIP may follow
// the versions in brackets.
var opening = regexp.MustCompile(`^([A-Z]\w+), key (\d+), (v\d+(?:-v\d+)?)((?: \(.+?\))?)\.(?:\s+|$)`)

// regressionNote refers to docs/regressions.md, which not every number is in; readers of the page need it less than those of the code.
var regressionNote = regexp.MustCompile(` \(regressions? [\d, ]+\)`)

// plainWord is a word, and no name of a field, a version or a setting.
var plainWord = regexp.MustCompile(`^[a-z]+,?$`)

// description is what a comment says of an API.
type description struct {
	versions   string // as the comment has them, "v3-v10"
	changes    string // what each version changed; may be empty
	paragraphs []string
	deviations []string
}

// writeReference writes docs/api-reference.md. An API that is served and not described, or described with versions other than those
// served, is an error.
func writeReference(w io.Writer, handlers string) error {
	described, err := descriptions(handlers)
	if err != nil {
		return err
	}
	general, err := packageDeviations(filepath.Join(handlers, "doc.go"))
	if err != nil {
		return err
	}
	var out strings.Builder
	out.WriteString(referenceHead + "## All APIs\n\n")
	writeDeviations(&out, general)
	var missing []string
	for i := range api.Facts {
		f := &api.Facts[i]
		first, last, ok := server.ServedVersions(f.Key)
		switch d := described[f.Name]; {
		case ok && d == nil:
			return fmt.Errorf("%s is served, and no comment in %s begins with \"%s, key %d, \"", f.Name, handlers, f.Name, f.Key)
		case ok && d.versions != versions(first, last):
			return fmt.Errorf("%s: its comment says %s, served are %s", f.Name, d.versions, versions(first, last))
		case ok:
			writeAPI(&out, f, d)
			delete(described, f.Name)
		case f.Listeners&api.OnBroker != 0:
			missing = append(missing, fmt.Sprintf("%s (%d)", f.Name, f.Key))
		}
	}
	for name := range described {
		return fmt.Errorf("%s is described and not served", name)
	}
	fmt.Fprintf(&out, "## Not served yet\n\nApache Kafka has these on a broker's listener as well. Here they are not offered in ApiVersions, and a request closes the connection.\n\n%s.\n",
		strings.Join(missing, ", "))
	_, err = io.WriteString(w, out.String())
	return err
}

// versions writes a range as the comments do.
func versions(first, last int16) string {
	if first == last {
		return fmt.Sprintf("v%d", first)
	}
	return fmt.Sprintf("v%d-v%d", first, last)
}

// writeAPI writes the part of one API.
func writeAPI(out *strings.Builder, f *api.Fact, d *description) {
	fmt.Fprintf(out, "## %s\n\nKey %d, served in %s of %s.", f.Name, f.Key, d.versions, versions(f.Min, f.Max))
	if d.changes != "" {
		fmt.Fprintf(out, " What versions changed: %s", d.changes)
	}
	out.WriteString("\n\n")
	for _, p := range d.paragraphs {
		out.WriteString(p + "\n\n")
	}
	if len(d.deviations) > 0 {
		out.WriteString("Deviations:\n\n")
		writeDeviations(out, d.deviations)
	}
}

func writeDeviations(out *strings.Builder, list []string) {
	for _, d := range list {
		if word, _, _ := strings.Cut(d, " "); plainWord.MatchString(word) {
			d = strings.ToUpper(d[:1]) + d[1:]
		}
		fmt.Fprintf(out, "- %s\n", d)
	}
	out.WriteString("\n")
}

// descriptions reads the comments of the handlers' files, by the name of the API.
func descriptions(dir string) (map[string]*description, error) {
	files, err := filepath.Glob(filepath.Join(dir, "[0-9][0-9][0-9]_*.go"))
	if err != nil {
		return nil, err
	}
	all := map[string]*description{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, c := range file.Comments {
			if api, d := describe(c); d != nil {
				all[api] = d
			}
		}
	}
	return all, nil
}

// describe reads one comment; nil if it is not one that opens a handler's file.
func describe(c *ast.CommentGroup) (name string, d *description) {
	first, rest, _ := strings.Cut(c.Text(), "\n\n")
	first = flow(first)
	m := opening.FindStringSubmatch(first)
	if m == nil {
		return "", nil
	}
	d = &description{versions: m[3], changes: first[len(m[0]):]}
	if m[4] != "" {
		d.changes = strings.TrimSpace(m[4][2:len(m[4])-1] + ". " + d.changes)
	}
	for _, p := range strings.Split(rest, "\n\n") {
		text, deviations := split(p)
		if text != "" {
			d.paragraphs = append(d.paragraphs, text)
		}
		d.deviations = append(d.deviations, deviations...)
	}
	return m[1], d
}

// packageDeviations are those of the package's own comment.
func packageDeviations(name string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, p := range strings.Split(file.Doc.Text(), "\n\n") {
		_, deviations := split(p)
		all = append(all, deviations...)
	}
	return all, nil
}

// split divides a paragraph at the lines that begin with "Deviation:".
func split(paragraph string) (text string, deviations []string) {
	parts := strings.Split("\n"+strings.TrimSpace(paragraph), "\nDeviation:")
	for _, p := range parts[1:] {
		deviations = append(deviations, flow(p))
	}
	return flow(parts[0]), deviations
}

// flow makes one line of a paragraph.
func flow(s string) string {
	return regressionNote.ReplaceAllString(strings.Join(strings.Fields(s), " "), "")
}
