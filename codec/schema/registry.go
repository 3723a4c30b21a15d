package schema

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// generateRegistry writes the facts of every API key, and constructors by key.
func generateRegistry(files []*File) (*bytes.Buffer, error) {
	var apis []*File
	for _, f := range files {
		if f.API == nil {
			continue
		}
		if int(f.API.Key) != len(apis) {
			return nil, fmt.Errorf("%s: API key %d, expected %d", f.Name, f.API.Key, len(apis))
		}
		if len(f.Messages) != 2 || f.Messages[0].Kind != "request" || f.Messages[1].Kind != "response" {
			return nil, fmt.Errorf("%s: an API has one request and one response", f.Name)
		}
		q, a := f.Messages[0], f.Messages[1]
		if q.Versions != a.Versions || q.Flexible.And(q.Versions) != a.Flexible.And(a.Versions) {
			return nil, fmt.Errorf("%s: request and response differ in versions", f.Name)
		}
		apis = append(apis, f)
	}
	p := &printer{}
	p.f("%s// API keys.\nconst (\n", banner)
	for _, f := range apis {
		p.f("Key%s int16 = %d\n", f.API.Name, f.API.Key)
	}
	p.f(")\n\n// Facts holds the facts of every API key, at the index of the key.\nvar Facts = [...]Fact{\n")
	for _, f := range apis {
		p.fact(f)
	}
	p.f("}\n")
	for i, kind := range []string{"Request", "Response"} {
		p.f("\n// New%s gives an empty %s of the key; nil for an unknown key.\n", kind, strings.ToLower(kind))
		p.f("func New%s(key int16) Message {\nswitch key {\n", kind)
		for _, f := range apis {
			p.f("case Key%s:\nreturn new(%s)\n", f.API.Name, f.Messages[i].Name)
		}
		p.f("}\nreturn nil\n}\n")
	}
	return &p.Buffer, nil
}

func (p *printer) fact(f *File) {
	m := f.Messages[0]
	p.f("{Key: Key%s, Name: %q, Min: %d, Max: %d, FlexibleFrom: ", f.API.Name, f.API.Name, m.Versions.Lo, m.Versions.Hi)
	if m.Flexible.Empty() {
		p.f("Never")
	} else {
		p.f("%d", m.Flexible.Lo)
	}
	deprecated := int16(-1)
	if !m.Deprecated.Empty() {
		deprecated = m.Deprecated.Hi
	}
	p.f(", DeprecatedTo: %d", deprecated)
	if m.Unstable || f.Messages[1].Unstable {
		p.f(", Unstable: true")
	}
	p.f(", Listeners: ")
	separator := ""
	for _, l := range []string{"zkBroker", "broker", "controller"} {
		if slices.Contains(f.API.Listeners, l) {
			p.f("%sOn%s", separator, upperFirst(l))
			separator = " | "
		}
	}
	p.f("},\n")
}

// generateErrors writes the error codes and what they mean.
func generateErrors(errors []ErrorFact) *bytes.Buffer {
	p := &printer{}
	p.f("%s// Error codes by Apache Kafka's names.\nconst (\n", banner)
	for _, e := range errors {
		p.f("%s ErrorCode = %d // %s\n", e.Go(), e.Code, e.Meaning)
	}
	p.f(")\n\n// errorFacts holds code -1 at index 0, and so on.\nvar errorFacts = [...]errorFact{\n")
	for _, e := range errors {
		p.f("{%q, %q, %t},\n", e.Name, e.Meaning, e.Retriable)
	}
	p.f("}\n")
	return &p.Buffer
}

// generateList writes the list of all messages by name, for tests.
func generateList(files []*File) *bytes.Buffer {
	p := &printer{}
	p.f("%s// newMessage makes each message of the tables.\nvar newMessage = map[string]func() Message{\n", banner)
	for _, f := range files {
		for _, m := range f.Messages {
			p.f("%q: func() Message { return new(%s) },\n", m.Name, m.Name)
		}
	}
	p.f("}\n")
	return &p.Buffer
}
