package transcripts

// Values: JSON with the order of keys kept, and the texts that stand for bytes.

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// object is a JSON object that keeps the order of its keys.
type object struct {
	K []string
	V map[string]any
}

func newObject() *object { return &object{V: map[string]any{}} }

func (o *object) set(k string, v any) {
	if _, ok := o.V[k]; !ok {
		o.K = append(o.K, k)
	}
	o.V[k] = v
}

// objectOf makes an object of alternating names and values.
func objectOf(pairs ...any) *object {
	o := newObject()
	for i := 0; i < len(pairs); i += 2 {
		o.set(pairs[i].(string), pairs[i+1])
	}
	return o
}

func (o *object) drop(k string) {
	delete(o.V, k)
	o.K = slices.DeleteFunc(o.K, func(x string) bool { return x == k })
}

// MarshalJSON writes the names in their order.
func (o *object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, k := range o.K {
		if i > 0 {
			b.WriteByte(',')
		}
		kb, _ := json.Marshal(k)
		b.Write(kb)
		b.WriteByte(':')
		vb, err := marshal(o.V[k])
		if err != nil {
			return nil, err
		}
		b.Write(vb)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// parseJSON reads JSON into *object, []any, string, json.Number, bool, nil.
func parseJSON(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return parseValue(d)
}

func parseValue(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if dl, ok := t.(json.Delim); ok {
		switch dl {
		case '{':
			o := newObject()
			for d.More() {
				k, err := d.Token()
				if err != nil {
					return nil, err
				}
				v, err := parseValue(d)
				if err != nil {
					return nil, err
				}
				o.set(k.(string), v)
			}
			_, err = d.Token()
			return o, err
		case '[':
			a := []any{}
			for d.More() {
				v, err := parseValue(d)
				if err != nil {
					return nil, err
				}
				a = append(a, v)
			}
			_, err = d.Token()
			return a, err
		}
	}
	return t, nil
}

func mustText(v any) string { b, _ := marshal(v); return string(b) }

func num(n int64) json.Number { return json.Number(strconv.FormatInt(n, 10)) }

func toInt(v any, path string) int64 {
	switch x := v.(type) {
	case json.Number:
		n, err := strconv.ParseInt(x.String(), 10, 64)
		if err != nil {
			panic(fmt.Sprintf("%s: %v", path, err))
		}
		return n
	case int64:
		return x
	case int:
		return int64(x)
	case bool:
		if x {
			return 1
		}
		return 0
	}
	panic(fmt.Sprintf("%s: want a number, have %T %v", path, v, v))
}

func toBytes(v any, path string) []byte {
	s, ok := v.(string)
	if !ok {
		panic(fmt.Sprintf("%s: want bytes as text, have %T", path, v))
	}
	switch {
	case strings.HasPrefix(s, "hex:"):
		b, err := hex.DecodeString(s[4:])
		if err != nil {
			panic(fmt.Sprintf("%s: %v", path, err))
		}
		return b
	case strings.HasPrefix(s, "text:"):
		return []byte(s[5:])
	case strings.HasPrefix(s, "subscription:"): // consumer protocol v0: one topic, no user data
		t := s[13:]
		b := binary.BigEndian.AppendUint16([]byte{0, 0, 0, 0, 0, 1}, uint16(len(t)))
		b = append(b, t...)
		return append(b, 0xff, 0xff, 0xff, 0xff)
	}
	return []byte(s)
}

func bytesText(b []byte) string {
	for _, c := range b {
		if c < 0x20 || c > 0x7e {
			return "hex:" + hex.EncodeToString(b)
		}
	}
	if len(b) == 0 {
		return ""
	}
	return "text:" + string(b)
}

// get reads a path such as topics[0].partitions[1].errorCode; nil when there is nothing.
func get(v any, path string) any {
	for _, part := range strings.Split(path, ".") {
		name, rest, _ := strings.Cut(part, "[")
		o, ok := v.(*object)
		if !ok {
			return nil
		}
		v = o.V[name]
		for rest != "" {
			var index string
			index, rest, _ = strings.Cut(rest, "]")
			rest = strings.TrimPrefix(rest, "[")
			n, err := strconv.Atoi(index)
			a, ok := v.([]any)
			if err != nil || !ok || n >= len(a) {
				return nil
			}
			v = a[n]
		}
	}
	return v
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
