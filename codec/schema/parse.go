package schema

import (
	"fmt"
	"strconv"
	"strings"
)

// Parse reads one table. name is the file's name without its ending.
func Parse(name, text string) (*File, error) {
	p := &parser{file: &File{Name: name}}
	for i, line := range strings.Split(text, "\n") {
		if line == "" {
			continue
		}
		body := strings.TrimLeft(line, " ")
		if err := p.line((len(line)-len(body))/2, strings.Split(body, " ")); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
	}
	for _, m := range p.file.Messages {
		if err := m.resolve(); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, m.Name, err)
		}
	}
	return p.file, nil
}

// parser keeps the structs that are open: stack[n] takes the fields at depth n+1.
type parser struct {
	file  *File
	stack []*Struct
}

func (p *parser) line(depth int, words []string) error {
	if depth == 0 {
		return p.top(words)
	}
	if depth > len(p.stack) || len(p.file.Messages) == 0 {
		return fmt.Errorf("indented too deep")
	}
	p.stack = p.stack[:depth]
	if words[0] == "struct" {
		return p.openStruct(words)
	}
	name, isField := strings.CutSuffix(words[0], ":")
	if !isField || len(words) < 3 {
		return fmt.Errorf("neither field nor struct: %q", strings.Join(words, " "))
	}
	f, err := parseField(name, words[1:])
	if err != nil {
		return err
	}
	parent := p.stack[depth-1]
	parent.Fields = append(parent.Fields, f)
	// Fields below this one define its struct; an empty one is replaced by the struct of that name in resolve.
	inner := &Struct{Name: f.StructName, Versions: f.Versions}
	if f.Type == "" {
		f.Struct = inner
	}
	p.stack = append(p.stack, inner)
	return nil
}

func (p *parser) top(words []string) error {
	if len(words) < 2 {
		return fmt.Errorf("incomplete statement")
	}
	switch words[0] {
	case "api":
		key, err := strconv.ParseInt(words[1], 10, 16)
		if err != nil || len(words) != 3 {
			return fmt.Errorf("bad api statement")
		}
		p.file.API = &API{Key: int16(key), Name: words[2]}
		return nil
	case "listeners":
		if p.file.API == nil {
			return fmt.Errorf("listeners without api")
		}
		p.file.API.Listeners = words[1:]
		return nil
	case "request", "response", "header", "data", "metadata":
		return p.openMessage(words)
	}
	return fmt.Errorf("unknown statement %q", words[0])
}

func (p *parser) openMessage(words []string) error {
	m := &Message{Kind: words[0], Name: words[1], Versions: noVersion, Flexible: noVersion, Deprecated: noVersion, ID: -1}
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		var err error
		switch key {
		case "versions":
			m.Versions, err = parseSpan(value)
		case "flexible":
			m.Flexible, err = parseSpan(value)
		case "deprecated":
			m.Deprecated, err = parseSpan(value)
		case "unstable":
			m.Unstable = true
		case "id":
			m.ID, err = strconv.Atoi(value)
		default:
			err = fmt.Errorf("unknown attribute %q", w)
		}
		if err != nil {
			return err
		}
	}
	if m.Versions.Empty() || m.Versions.Hi == open {
		return fmt.Errorf("message needs versions=N-M")
	}
	m.Root = &Struct{Name: m.Name, Go: m.Name, Versions: m.Versions}
	m.Structs = []*Struct{m.Root}
	p.file.Messages = append(p.file.Messages, m)
	p.stack = []*Struct{m.Root}
	return nil
}

func (p *parser) openStruct(words []string) error {
	if len(p.stack) != 1 || len(words) != 3 {
		return fmt.Errorf("bad struct statement")
	}
	versions, err := parseSpan(words[2])
	if err != nil {
		return err
	}
	s := &Struct{Name: words[1], Versions: versions}
	m := p.file.Messages[len(p.file.Messages)-1]
	m.Structs = append(m.Structs, s)
	p.stack = append(p.stack, s)
	return nil
}

var primitives = map[string]bool{
	"bool": true, "int8": true, "int16": true, "uint16": true, "int32": true, "int64": true, "float64": true,
	"string": true, "bytes": true, "uuid": true, "records": true,
}

func parseField(name string, words []string) (*Field, error) {
	f := &Field{Name: name, Text: strings.Join(words, " "), Nullable: noVersion, Tagged: noVersion, Tag: -1}
	var err error
	if f.Versions, err = parseSpan(words[1]); err != nil {
		return nil, err
	}
	typ, isArray := strings.CutPrefix(words[0], "[]")
	f.Array = isArray
	switch {
	case primitives[typ]:
		f.Type = typ
	case typ != "" && typ[0] >= 'A' && typ[0] <= 'Z':
		f.StructName = typ
	default:
		return nil, fmt.Errorf("unknown type %q", words[0])
	}
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "nullable":
			f.Nullable, err = parseSpan(value)
		case "tagged":
			f.Tagged, err = parseSpan(value)
		case "tag":
			f.Tag, err = strconv.Atoi(value)
		case "default":
			f.Default = value
		case "ignorable":
			f.Ignorable = true
		case "flexible":
			f.Inflexible = value == "none"
		case "key", "entity", "zerocopy": // no effect on the wire
		default:
			err = fmt.Errorf("unknown attribute %q", w)
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}
