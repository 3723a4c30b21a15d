package transcripts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
)

// Scenario is one script: what it settles, what it needs, and its steps in order.
type Scenario struct {
	Name        string                    `json:"name"`
	Area        string                    `json:"area"`
	Settles     string                    `json:"settles"`
	Needs       []string                  `json:"needs,omitempty"`
	Settings    map[string]string         `json:"settings,omitempty"`
	Free        string                    `json:"free,omitempty"`
	Exclusive   bool                      `json:"exclusive,omitempty"` // wants a broker that nobody else uses meanwhile
	Connections map[string]connectionSpec `json:"connections,omitempty"`
	Steps       []*step                   `json:"steps"`
}

type connectionSpec struct {
	Listener  string `json:"listener,omitempty"` // plain (default), sasl, saslshort
	User      string `json:"user,omitempty"`     // logged in by PLAIN before the first step
	Password  string `json:"password,omitempty"`
	Mechanism string `json:"mechanism,omitempty"`
}

type step struct {
	Note      string              `json:"note,omitempty"`
	Conn      string              `json:"conn,omitempty"`
	API       string              `json:"api,omitempty"`
	Key       *int                `json:"key,omitempty"`
	Version   int                 `json:"version"`
	ClientID  any                 `json:"clientId,omitempty"`
	Request   json.RawMessage     `json:"request,omitempty"`
	Raw       string              `json:"raw,omitempty"`
	Decode    *[2]json.RawMessage `json:"decodeAs,omitempty"`
	Async     string              `json:"async,omitempty"`
	Recv      string              `json:"recv,omitempty"`
	WaitMs    int                 `json:"waitMs,omitempty"`
	Close     string              `json:"close,omitempty"`
	Restart   bool                `json:"restart,omitempty"`
	Outcome   string              `json:"outcome,omitempty"`  // response (default), closed, silent, rawframe
	OrClosed  bool                `json:"orClosed,omitempty"` // a closed connection will do as well
	SilentMs  int                 `json:"silentMs,omitempty"`
	AtLeastMs int                 `json:"atLeastMs,omitempty"`
	AtMostMs  int                 `json:"atMostMs,omitempty"`
	Until     map[string]any      `json:"until,omitempty"`
	Bind      map[string]string   `json:"bind,omitempty"`
	Any       []string            `json:"any,omitempty"`
	OneOf     map[string][]any    `json:"oneOf,omitempty"`
	Only      []string            `json:"only,omitempty"`
	Unordered []string            `json:"unordered,omitempty"`
	Response  json.RawMessage     `json:"response,omitempty"`
	ReqHex    string              `json:"requestHex,omitempty"`
	RespHex   string              `json:"responseHex,omitempty"`
	TookMs    *int64              `json:"tookMs,omitempty"`
}

// Load reads the scenarios in files and, recursively, in directories, in the order of their paths.
func Load(paths ...string) ([]*Scenario, error) {
	var files []string
	for _, p := range paths {
		err := filepath.WalkDir(p, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && filepath.Ext(name) == ".json" && d.Name() != "schemas.json" {
				files = append(files, name)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	sort.Strings(files)
	var all []*Scenario
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		sc := &Scenario{}
		if err := json.Unmarshal(b, sc); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		if sc.Name == "" || len(sc.Steps) == 0 {
			return nil, fmt.Errorf("%s: no scenario", f)
		}
		all = append(all, sc)
	}
	return all, nil
}

// Restarts says whether the script stops and starts the broker.
func (sc *Scenario) Restarts() bool {
	for _, st := range sc.Steps {
		if st.Restart {
			return true
		}
	}
	return false
}

// save writes the scenario into dir/AREA/NAME.json.
func (sc *Scenario) save(dir string) error {
	b, err := marshal(sc)
	if err != nil {
		return err
	}
	v, err := parseJSON(b)
	if err != nil {
		return err
	}
	for _, x := range v.(*object).V["steps"].([]any) {
		st := x.(*object)
		if _, ok := st.V["api"]; !ok { // waits and the like have no version
			st.drop("version")
		}
	}
	var out bytes.Buffer
	pretty(&out, v, "")
	out.WriteByte('\n')
	path := filepath.Join(dir, sc.Area, sc.Name+".json")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// pretty keeps one line for each short value, so that files stay readable.
func pretty(b *bytes.Buffer, v any, indent string) {
	oneLine := mustText(v)
	if len(oneLine) < 110 {
		b.WriteString(oneLine)
		return
	}
	switch x := v.(type) {
	case *object:
		b.WriteString("{\n")
		for i, k := range x.K {
			b.WriteString(indent + " " + mustText(k) + ": ")
			pretty(b, x.V[k], indent+" ")
			if i < len(x.K)-1 {
				b.WriteByte(',')
			}
			b.WriteByte('\n')
		}
		b.WriteString(indent + "}")
	case []any:
		b.WriteString("[\n")
		for i, y := range x {
			b.WriteString(indent + " ")
			pretty(b, y, indent+" ")
			if i < len(x)-1 {
				b.WriteByte(',')
			}
			b.WriteByte('\n')
		}
		b.WriteString(indent + "]")
	default:
		b.WriteString(oneLine)
	}
}
