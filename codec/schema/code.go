package schema

import (
	"fmt"
	"strings"
)

var methods = map[string]string{
	"bool": "Bool", "int8": "Int8", "int16": "Int16", "uint16": "Uint16", "int32": "Int32", "int64": "Int64",
	"float64": "Float64", "uuid": "UUID", "string": "String", "bytes": "Bytes", "records": "Records",
}

// decode is the method that reads the struct.
func (g *structGen) decode() []byte {
	body := &printer{}
	for _, f := range g.s.Fields {
		if f.IsTagged() {
			continue
		}
		switch c := f.Versions.condition(g.s.Effective); c {
		case "":
			body.f("%s", g.read(f))
		case "false":
			body.f("%s", f.setDefault())
		default:
			body.f("if %s {\n%s} else {\n%s}\n", c, g.read(f), f.setDefault())
		}
	}
	g.readTags(body)
	return g.function("decode", "r", "wire.Reader", body.Bytes())
}

// read is the code that reads one field.
func (g *structGen) read(f *Field) string {
	x, flexible := "x."+f.Go(), g.flexible(f)
	present := f.Versions.And(g.s.Effective)
	nullable := f.Nullable.expression(present)
	switch {
	case f.Struct != nil && f.Array:
		return g.readStructs(f, flexible, nullable)
	case f.Struct != nil && f.IsNullable():
		return fmt.Sprintf("if r.Int8() < 0 {\n%s = nil\n} else {\nif %s == nil {\n%s = new(%s)\n}\n%s.decode(r, version)\n}\n",
			x, x, x, f.Struct.Go, x)
	case f.Struct != nil:
		return x + ".decode(r, version)\n"
	case f.Array:
		return fmt.Sprintf("%s = r.%sArray(%s, %s, %s)\n", x, arrayTypes[f.Type], x, flexible, nullable)
	case f.Type == "string" && f.IsNullable():
		return fmt.Sprintf("%s = r.NullString(%s, %s)\n", x, flexible, nullable)
	case f.Type == "string":
		return fmt.Sprintf("%s = r.String(%s)\n", x, flexible)
	case f.Type == "bytes" || f.Type == "records":
		return fmt.Sprintf("%s = r.%s(%s, %s)\n", x, methods[f.Type], flexible, nullable)
	case f.isErrorCode():
		return x + " = ErrorCode(r.Int16())\n"
	}
	return fmt.Sprintf("%s = r.%s()\n", x, methods[f.Type])
}

// readStructs reads an array of structs. It stops at the first error, or a bad message would cost a turn per element.
func (g *structGen) readStructs(f *Field, flexible, nullable string) string {
	x := "x." + f.Go()
	least := g.message.minSize(f.Struct, f.Versions.And(g.s.Effective).And(f.Struct.Effective))
	length := fmt.Sprintf("r.ArrayLen(%s, %d)", flexible, least)
	if f.IsNullable() {
		length = fmt.Sprintf("r.NullArrayLen(%s, %d, %s)", flexible, least, nullable)
	}
	return fmt.Sprintf("%s = wire.Resize(%s, %s)\nfor i := range %s {\n%s[i].decode(r, version)\nif r.Failed() {\nreturn\n}\n}\n",
		x, x, length, x, x)
}

// readTags reads the tagged section.
func (g *structGen) readTags(p *printer) {
	if g.neverFlexible() {
		return
	}
	tagged := g.tagged()
	for _, f := range tagged {
		p.f("%s", f.setDefault())
	}
	flexible := g.flexible(nil)
	if len(tagged) == 0 && flexible == "true" {
		p.f("x.UnknownTags = r.UnknownTags(x.UnknownTags)\n")
		return
	}
	if len(tagged) == 0 {
		p.f("if flexible {\nx.UnknownTags = r.UnknownTags(x.UnknownTags)\n} else {\nx.UnknownTags = x.UnknownTags[:0]\n}\n")
		return
	}
	p.f("x.UnknownTags = x.UnknownTags[:0]\n")
	if flexible != "true" {
		p.f("if flexible {\n")
	}
	p.f("for t := r.Tags(); t.Next(r); {\nswitch {\n")
	for _, f := range tagged {
		c := f.Versions.condition(g.s.Effective.And(g.message.Flexible))
		if c != "" {
			c = " && " + c
		}
		p.f("case t.ID == %d%s:\n%s", f.Tag, c, g.read(f))
	}
	p.f("default:\nx.UnknownTags = append(x.UnknownTags, t.Raw(r))\n}\n}\n")
	if flexible != "true" {
		p.f("}\n")
	}
}

// encode is the method that writes the struct.
func (g *structGen) encode() []byte {
	body := &printer{}
	for _, f := range g.s.Fields {
		c := f.Versions.condition(g.s.Effective)
		unsupported := ""
		if !f.Ignorable {
			unsupported = fmt.Sprintf("w.Unsupported(%q, version)\n", g.s.Go+"."+f.Name)
		}
		write := ""
		if !f.IsTagged() {
			write = g.write(f)
		}
		switch {
		case c == "":
			body.f("%s", write)
		case write != "" && c != "false" && unsupported != "":
			body.f("if %s {\n%s} else if %s {\n%s}\n", c, write, f.notDefault(), unsupported)
		case write != "" && c != "false":
			body.f("if %s {\n%s}\n", c, write)
		case unsupported != "" && c == "false":
			body.f("if %s {\n%s}\n", f.notDefault(), unsupported)
		case unsupported != "":
			body.f("if %s && %s {\n%s}\n", f.Versions.outside(g.s.Effective), operand(f.notDefault()), unsupported)
		}
	}
	g.writeTags(body)
	return g.function("encode", "w", "wire.Writer", body.Bytes())
}

// write is the code that writes one field.
func (g *structGen) write(f *Field) string {
	x, flexible := "x."+f.Go(), g.flexible(f)
	check := ""
	if f.IsNullable() && (f.Struct == nil || f.Array) {
		present := f.Versions.And(g.s.Effective)
		if c := f.Nullable.outside(present); c != "" {
			check = fmt.Sprintf("if %s && %s {\nw.Null(%q, version)\n}\n", c, f.isNull(), g.s.Go+"."+f.Name)
		}
	}
	value := ""
	switch {
	case f.Array && f.Struct != nil:
		value = fmt.Sprintf("w.ArrayLen(len(%s), %s)\nfor i := range %s {\n%s[i].encode(w, version)\n}\n", x, flexible, x, x)
	case f.Array:
		value = fmt.Sprintf("w.%sArray(%s, %s)\n", arrayTypes[f.Type], x, flexible)
	case f.Struct != nil && f.IsNullable():
		return fmt.Sprintf("if %s == nil {\nw.Int8(-1)\n} else {\nw.Int8(1)\n%s.encode(w, version)\n}\n", x, x)
	case f.Struct != nil:
		return x + ".encode(w, version)\n"
	case f.Type == "string" || f.Type == "bytes" || f.Type == "records":
		name := methods[f.Type]
		if f.IsNullable() {
			name = map[string]string{"string": "NullString", "bytes": "NullBytes", "records": "NullRecords"}[f.Type]
		}
		return fmt.Sprintf("%sw.%s(%s, %s)\n", check, name, x, flexible)
	case f.isErrorCode():
		return fmt.Sprintf("w.Int16(int16(%s))\n", x)
	default:
		return fmt.Sprintf("w.%s(%s)\n", methods[f.Type], x)
	}
	if f.IsNullable() {
		value = fmt.Sprintf("if %s == nil {\nw.NullArray(%s)\n} else {\n%s}\n", x, flexible, value)
	}
	return check + value
}

// writeTags writes the tagged section: known tags that are not at their default, the unknown ones sorted in among them.
func (g *structGen) writeTags(p *printer) {
	if g.neverFlexible() {
		return
	}
	tagged := g.tagged()
	flexible := g.flexible(nil)
	if flexible != "true" {
		p.f("if flexible {\n")
		defer p.f("} else if len(x.UnknownTags) > 0 {\nw.Unsupported(%q, version)\n}\n", g.s.Go+".UnknownTags")
	}
	if len(tagged) == 0 {
		p.f("w.Tags(x.UnknownTags)\n")
		return
	}
	p.f("tags := len(x.UnknownTags)\n")
	for _, f := range tagged {
		p.f("has%s := %s\n", f.Go(), f.notDefault())
		if c := f.Versions.condition(g.s.Effective.And(g.message.Flexible)); c != "" {
			p.f("has%s = has%s && %s\n", f.Go(), f.Go(), c)
		}
		p.f("if has%s {\ntags++\n}\n", f.Go())
	}
	p.f("w.Uvarint(uint32(tags))\nrest := x.UnknownTags\n")
	for _, f := range tagged {
		p.f("if has%s {\nrest = w.TagsBelow(rest, %d)\nmark := w.BeginTag(%d)\n%sw.EndTag(mark)\n}\n", f.Go(), f.Tag, f.Tag, g.write(f))
	}
	p.f("w.RestOfTags(rest)\n")
}

// defaults is the method that sets all fields to their defaults.
func (g *structGen) defaults() []byte {
	p := &printer{}
	p.f("\n// Default sets every field to its default and keeps the memory of slices.\nfunc (x *%s) Default() {\n", g.s.Go)
	for _, f := range g.s.Fields {
		p.f("%s", f.setDefault())
	}
	if !g.neverFlexible() {
		p.f("x.UnknownTags = x.UnknownTags[:0]\n")
	}
	p.f("}\n")
	return p.Bytes()
}

// compare is the method that says whether all fields are at their defaults.
func (g *structGen) compare() []byte {
	p := &printer{}
	p.f("\nfunc (x *%s) isDefault() bool {\n", g.s.Go)
	for _, f := range g.s.Fields {
		p.f("if %s {\nreturn false\n}\n", f.notDefault())
	}
	if g.neverFlexible() {
		p.f("return true\n}\n")
	} else {
		p.f("return len(x.UnknownTags) == 0\n}\n")
	}
	return p.Bytes()
}

// operand puts a condition in brackets where it stands beside &&.
func operand(condition string) string {
	if strings.Contains(condition, "||") {
		return "(" + condition + ")"
	}
	return condition
}
