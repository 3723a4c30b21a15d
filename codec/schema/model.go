package schema

import "unicode"

// File is one table: an API with its request and response, or a single message of another kind.
type File struct {
	Name     string // "000_produce", the file's name without its ending
	API      *API   // nil for headers, data and metadata records
	Messages []*Message
}

// API is what a table says of an API key.
type API struct {
	Key       int16
	Name      string
	Listeners []string // "broker", "controller", "zkBroker"
}

// Message is one message with everything inside it.
type Message struct {
	Kind       string // "request", "response", "header", "data" or "metadata"
	Name       string
	Versions   Span
	Flexible   Span
	Deprecated Span
	Unstable   bool
	ID         int // of a metadata record, else -1
	Root       *Struct
	Structs    []*Struct // Root first, then every struct inside, each once
}

// Struct is the message itself or a struct inside it.
type Struct struct {
	Name     string // in the table
	Go       string // in Go: the message's name, then Name
	Versions Span
	Fields   []*Field
	// Effective spans the valid versions in which the struct can be on the wire: its own and those of every field around it.
	Effective Span
	// compared: something asks whether a value of it is all defaults.
	compared bool
}

// Field is one field of a struct.
type Field struct {
	Name       string
	Text       string // type and attributes as the table has them
	Type       string // a primitive; "" for a struct
	StructName string
	Struct     *Struct
	Array      bool
	Versions   Span
	Nullable   Span
	Tagged     Span
	Tag        int
	Default    string // as written; "" without the word
	Ignorable  bool
	Inflexible bool // keeps its old encoding at flexible versions
}

// Go is the field's name in Go.
func (f *Field) Go() string { return upperFirst(f.Name) }

// IsNullable says whether the field may be null at any version.
func (f *Field) IsNullable() bool { return !f.Nullable.Empty() }

// IsTagged says whether the field travels in the tagged section.
func (f *Field) IsTagged() bool { return !f.Tagged.Empty() }

func upperFirst(s string) string {
	r := []rune(s)
	r[0] = unicode.ToUpper(r[0])
	return string(r)
}
