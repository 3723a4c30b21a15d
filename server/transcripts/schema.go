package transcripts

// The schemas of all messages, as data: names, types, versions, tags.

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"strconv"
	"strings"
)

//go:embed schemas.json
var schemaJSON []byte

type verRange []int

func (r verRange) has(v int) bool { return len(r) == 2 && v >= r[0] && v <= r[1] }

type field struct {
	Name     string   `json:"n"`
	Type     string   `json:"t"`
	Vers     verRange `json:"v"`
	Nullable verRange `json:"nv"`
	Default  any      `json:"d"`
	Tag      *int     `json:"tag"`
	TagVers  verRange `json:"tv"`
	Fields   []*field `json:"f"`
}

type message struct {
	Name   string   `json:"name"`
	Valid  verRange `json:"valid"`
	Flex   verRange `json:"flex"`
	Fields []*field `json:"fields"`
}

type schemaSet struct {
	Requests  map[string]*message `json:"requests"`
	Responses map[string]*message `json:"responses"`
}

var schemas schemaSet

func init() {
	d := json.NewDecoder(bytes.NewReader(schemaJSON))
	d.UseNumber()
	if err := d.Decode(&schemas); err != nil {
		panic(err)
	}
}

func apiKey(name string) (int, bool) {
	for k, m := range schemas.Requests {
		if m.Name == name {
			n, _ := strconv.Atoi(k)
			return n, true
		}
	}
	return 0, false
}

// zero is the value a field has when it is left out.
func (f *field) zero() any {
	if f.Default != nil {
		if s, ok := f.Default.(string); ok {
			if s == "null" {
				return nil
			}
			switch f.Type {
			case "string", "uuid", "bytes":
				return s
			case "bool":
				return s == "true"
			}
			if strings.HasPrefix(s, "0x") {
				n, _ := strconv.ParseInt(s[2:], 16, 64)
				return json.Number(strconv.FormatInt(n, 10))
			}
			return json.Number(s)
		}
		return f.Default
	}
	switch f.Type {
	case "string":
		return ""
	case "bool":
		return false
	case "uuid":
		return zeroUUID
	case "bytes":
		return ""
	case "records":
		return nil
	}
	if strings.HasPrefix(f.Type, "[]") {
		return []any{}
	}
	if len(f.Fields) > 0 {
		return newObject()
	}
	return json.Number("0")
}

const zeroUUID = "AAAAAAAAAAAAAAAAAAAAAA"
