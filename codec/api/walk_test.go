package api

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"kaas/codec/schema"
	"kaas/codec/wire"
)

// walker compares messages with Kafka's JSON, guided by the tables.
type walker struct {
	messages map[string]*schema.Message
}

func newWalker(t testing.TB) *walker {
	files, err := schema.Load()
	if err != nil {
		t.Fatal(err)
	}
	w := &walker{messages: map[string]*schema.Message{}}
	for _, f := range files {
		for _, m := range f.Messages {
			w.messages[m.Name] = m
		}
	}
	return w
}

// compare checks that m holds exactly what the fixture's JSON says, and its unknown tags in every struct.
func (w *walker) compare(t testing.TB, f *fixture, m Message) {
	table := w.messages[f.message()]
	w.compareStruct(t, f, table, table.Root, reflect.ValueOf(m).Elem(), f.JSON, table.Name)
}

func (w *walker) compareStruct(t testing.TB, f *fixture, m *schema.Message, s *schema.Struct, v reflect.Value, want map[string]any, path string) {
	known := 0
	for _, field := range s.Fields {
		if !field.Versions.Has(f.Version) {
			continue
		}
		got := v.FieldByName(field.Go())
		name := lowerFirst(field.Name)
		wanted, there := want[name]
		if !there {
			// Kafka's JSON leaves tagged fields out when they are at their default.
			if !field.IsTagged() {
				t.Errorf("%s v%d %s: JSON lacks %s.%s", m.Name, f.Version, f.Case, path, name)
			}
			continue
		}
		known++
		w.compareField(t, f, m, field, got, wanted, path+"."+name)
	}
	if known != len(want) {
		t.Errorf("%s v%d %s: %s has %d fields, JSON %d", m.Name, f.Version, f.Case, path, known, len(want))
	}
	if m.Flexible.Has(f.Version) {
		tags := v.FieldByName("UnknownTags").Interface().([]wire.Tag)
		sameTags(t, f, path, tags, f.UnknownTags)
	}
}

func (w *walker) compareField(t testing.TB, f *fixture, m *schema.Message, field *schema.Field, got reflect.Value, want any, path string) {
	if list, ok := want.([]any); ok && field.Array {
		if got.IsNil() || got.Len() != len(list) {
			t.Errorf("%s v%d %s: %s has %d elements (null %t), want %d", m.Name, f.Version, f.Case, path, got.Len(), got.IsNil(), len(list))
			return
		}
		for i := range list {
			w.compareValue(t, f, m, field, got.Index(i), list[i], path)
		}
		return
	}
	w.compareValue(t, f, m, field, got, want, path)
}

func (w *walker) compareValue(t testing.TB, f *fixture, m *schema.Message, field *schema.Field, got reflect.Value, want any, path string) {
	if inner, ok := want.(map[string]any); ok {
		if got.Kind() == reflect.Pointer {
			got = got.Elem()
		}
		w.compareStruct(t, f, m, field.Struct, got, inner, path)
		return
	}
	if is := plain(got); is != normal(want, got) {
		t.Errorf("%s v%d %s: %s is %#v, want %#v", m.Name, f.Version, f.Case, path, is, normal(want, got))
	}
}

// plain renders a decoded value as the fixture's JSON does: null, bool, string, or a number as int64 or float64.
func plain(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case wire.NullString:
		if !x.Valid {
			return nil
		}
		return x.String
	case wire.UUID:
		return x.String()
	case wire.Records:
		if x.Null() {
			return nil
		}
		return base64.StdEncoding.EncodeToString(x.Bytes)
	case []byte:
		if x == nil {
			return nil
		}
		return base64.StdEncoding.EncodeToString(x)
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return "not null"
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int()
	case reflect.Uint16:
		return int64(v.Uint())
	case reflect.Float64:
		return math.Float64bits(v.Float())
	}
	return v.Interface()
}

// normal gives a JSON value the type that plain gives.
func normal(want any, got reflect.Value) any {
	n, ok := want.(json.Number)
	if !ok {
		return want
	}
	if got.Kind() == reflect.Float64 {
		x, err := n.Float64()
		if err != nil {
			return err
		}
		return math.Float64bits(x)
	}
	x, err := n.Int64()
	if err != nil {
		return err
	}
	return x
}
