package schema

import "fmt"

// resolve finds the struct of every field, names structs in Go, works out the versions in which each can be on the wire,
// and refuses what the generator cannot do.
func (m *Message) resolve() error {
	named := map[string]*Struct{}
	for _, s := range m.Structs[1:] {
		if named[s.Name] != nil {
			return fmt.Errorf("struct %s defined twice", s.Name)
		}
		named[s.Name] = s
	}
	for i := 0; i < len(m.Structs); i++ { // grows: structs defined in place come after those they stand in
		s := m.Structs[i]
		if s != m.Root {
			s.Go = m.Name + s.Name
		}
		s.Effective = noVersion
		for _, f := range s.Fields {
			if f.Type != "" {
				continue
			}
			if len(f.Struct.Fields) > 0 {
				if named[f.StructName] != nil {
					return fmt.Errorf("struct %s defined twice", f.StructName)
				}
				named[f.StructName] = f.Struct
				m.Structs = append(m.Structs, f.Struct)
				continue
			}
			if f.Struct = named[f.StructName]; f.Struct == nil {
				return fmt.Errorf("no struct %s", f.StructName)
			}
		}
	}
	m.Root.spread(m.Versions)
	for _, s := range m.Structs {
		if s.Effective.Empty() {
			return fmt.Errorf("struct %s is never on the wire", s.Name)
		}
		for _, f := range s.Fields {
			if err := f.check(m, s); err != nil {
				return fmt.Errorf("%s.%s: %w", s.Name, f.Name, err)
			}
			if f.Struct != nil && !f.Array && !f.IsNullable() && (f.IsTagged() || !f.Ignorable) {
				f.Struct.markCompared()
			}
		}
	}
	return nil
}

// spread adds versions to those in which s can be on the wire, and goes on with the structs inside.
func (s *Struct) spread(versions Span) {
	s.Effective = s.Effective.hull(versions.And(s.Versions))
	for _, f := range s.Fields {
		if f.Struct != nil {
			f.Struct.spread(s.Effective.And(f.Versions))
		}
	}
}

func (s *Struct) markCompared() {
	s.compared = true
	for _, f := range s.Fields {
		if f.Struct != nil && !f.Array && !f.IsNullable() {
			f.Struct.markCompared()
		}
	}
}

var arrayTypes = map[string]string{
	"int8": "Int8", "int32": "Int32", "int64": "Int64", "uuid": "UUID", "string": "String",
}

// check refuses what the tables of 3.7 do not have and the generator therefore does not do.
func (f *Field) check(m *Message, s *Struct) error {
	present := f.Versions.And(s.Effective)
	switch {
	case f.Array && f.Type != "" && arrayTypes[f.Type] == "":
		return fmt.Errorf("no arrays of %s", f.Type)
	case f.IsTagged() != (f.Tag >= 0):
		return fmt.Errorf("tag and tagged go together")
	case f.IsTagged() && f.Tagged.And(s.Effective) != present:
		return fmt.Errorf("tagged in some versions and in line in others")
	case f.IsTagged() && m.Flexible.And(present) != present:
		return fmt.Errorf("tagged at a version that is not flexible")
	case f.IsTagged() && (f.holdsRecords() || f.Struct != nil && f.IsNullable() && !f.Array):
		return fmt.Errorf("this type cannot be tagged")
	case f.Struct != nil && !f.Array && f.IsNullable() && (f.Nullable.And(present) != present || f.Default != "null"):
		return fmt.Errorf("a nullable struct must be nullable always and null by default")
	case f.IsNullable() && f.Type != "string" && f.Type != "bytes" && f.Type != "records" && f.Struct == nil && !f.Array:
		return fmt.Errorf("%s cannot be null", f.Type)
	case f.Array && f.Default != "" && f.Default != "null":
		return fmt.Errorf("an array's default is empty or null")
	}
	return nil
}

// holdsRecords says whether records are in the field. A tagged value is moved after it is written when it is long, and
// a Cut in it would be wrong then.
func (f *Field) holdsRecords() bool {
	if f.Struct != nil {
		for _, inner := range f.Struct.Fields {
			if inner.holdsRecords() {
				return true
			}
		}
	}
	return f.Type == "records"
}

// minSize is the least number of bytes that s takes at any version in which it can be on the wire, at least 1.
func (m *Message) minSize(s *Struct, within Span) int {
	least := -1
	for v := within.Lo; v <= within.Hi; v++ {
		if n := m.minSizeAt(s, v); least < 0 || n < least {
			least = n
		}
	}
	return max(least, 1)
}

func (m *Message) minSizeAt(s *Struct, version int16) int {
	flexible := m.Flexible.Has(version)
	size := 0
	if flexible {
		size = 1 // an empty tagged section
	}
	for _, f := range s.Fields {
		if !f.Versions.Has(version) || f.IsTagged() {
			continue
		}
		compact := flexible && !f.Inflexible
		switch {
		case compact && (f.Array || f.Type == "string" || f.Type == "bytes" || f.Type == "records"):
			size++
		case f.Array:
			size += 4
		case f.Struct != nil && f.IsNullable():
			size++
		case f.Struct != nil:
			size += m.minSizeAt(f.Struct, version)
		default:
			size += map[string]int{
				"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8, "float64": 8,
				"string": 2, "bytes": 4, "uuid": 16, "records": 4,
			}[f.Type]
		}
	}
	return size
}
