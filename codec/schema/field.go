package schema

import (
	"fmt"
	"strings"
)

var scalarTypes = map[string]string{
	"bool": "bool", "int8": "int8", "int16": "int16", "uint16": "uint16", "int32": "int32", "int64": "int64",
	"float64": "float64", "string": "string", "bytes": "[]byte", "uuid": "wire.UUID", "records": "wire.Records",
}

// isErrorCode says whether the field gets the type ErrorCode: in the tables every such int16 has that name.
func (f *Field) isErrorCode() bool {
	return f.Type == "int16" && !f.Array && strings.HasSuffix(f.Name, "ErrorCode")
}

// goType is the field's type in Go.
func (f *Field) goType() string {
	t := scalarTypes[f.Type]
	switch {
	case f.Struct != nil && f.IsNullable() && !f.Array:
		return "*" + f.Struct.Go
	case f.Struct != nil:
		t = f.Struct.Go
	case f.Type == "string" && f.IsNullable() && !f.Array:
		return "wire.NullString"
	case f.isErrorCode():
		return "ErrorCode"
	}
	if f.Array {
		return "[]" + t
	}
	return t
}

// isSlice says whether nil stands for null.
func (f *Field) isSlice() bool { return f.Array || f.Type == "bytes" }

// nullByDefault says whether the default is null.
func (f *Field) nullByDefault() bool { return f.Default == "null" || f.Type == "records" && !f.Array }

// stringDefault is the default of a string as a Go literal.
func (f *Field) stringDefault() string {
	if f.Default == "" {
		return `""`
	}
	return f.Default
}

// numberDefault is the default of a number.
func (f *Field) numberDefault() string {
	if f.Default == "" {
		return "0"
	}
	return f.Default
}

// setDefault is the statement that gives x's field its default and keeps the memory of arrays.
func (f *Field) setDefault() string {
	x := "x." + f.Go()
	switch {
	case f.Array && f.nullByDefault(), f.Type == "bytes" && (f.nullByDefault() || !f.IsNullable()):
		return x + " = nil\n"
	case f.Array && f.IsNullable():
		return fmt.Sprintf("%s = wire.Resize(%s, 0)\n", x, x)
	case f.Array:
		return fmt.Sprintf("%s = %s[:0]\n", x, x)
	case f.Struct != nil && f.IsNullable():
		return x + " = nil\n"
	case f.Struct != nil:
		return x + ".Default()\n"
	}
	switch f.Type {
	case "bool":
		return fmt.Sprintf("%s = %t\n", x, f.Default == "true")
	case "bytes":
		return x + " = []byte{}\n"
	case "uuid":
		return x + " = wire.UUID{}\n"
	case "records":
		return x + " = wire.Records{}\n"
	case "string":
		if !f.IsNullable() {
			return fmt.Sprintf("%s = %s\n", x, f.stringDefault())
		}
		if f.nullByDefault() {
			return x + " = wire.NullString{}\n"
		}
		return fmt.Sprintf("%s = wire.Some(%s)\n", x, f.stringDefault())
	}
	return fmt.Sprintf("%s = %s\n", x, f.numberDefault())
}

// notDefault is the condition under which x's field is not at its default.
func (f *Field) notDefault() string {
	x := "x." + f.Go()
	switch {
	case f.isSlice() && f.nullByDefault():
		return x + " != nil"
	case f.isSlice() && f.IsNullable():
		return fmt.Sprintf("%s == nil || len(%s) != 0", x, x)
	case f.isSlice():
		return fmt.Sprintf("len(%s) != 0", x)
	case f.Struct != nil && f.IsNullable():
		return x + " != nil"
	case f.Struct != nil:
		return "!" + x + ".isDefault()"
	}
	switch f.Type {
	case "bool":
		if f.Default == "true" {
			return "!" + x
		}
		return x
	case "uuid":
		return x + " != (wire.UUID{})"
	case "records":
		return "!" + x + ".Null()"
	case "string":
		if !f.IsNullable() {
			return fmt.Sprintf("%s != %s", x, f.stringDefault())
		}
		if f.nullByDefault() {
			return x + ".Valid"
		}
		return fmt.Sprintf("%s != wire.Some(%s)", x, f.stringDefault())
	}
	return fmt.Sprintf("%s != %s", x, f.numberDefault())
}

// isNull is the condition under which x's nullable field is null.
func (f *Field) isNull() string {
	x := "x." + f.Go()
	switch {
	case f.isSlice():
		return x + " == nil"
	case f.Type == "records":
		return x + ".Null()"
	}
	return "!" + x + ".Valid"
}
