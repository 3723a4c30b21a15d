package work

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"
)

// fileMax bounds a scenario file.
const fileMax = 1 << 20

// ReadFile reads a scenario file: loads with what they share.
func ReadFile(name string) ([]Spec, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, fileMax+1))
	if err == nil && len(b) > fileMax {
		err = fmt.Errorf("larger than %d bytes", fileMax)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	specs, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return specs, nil
}

var errNoLoads = errors.New("no loads")

// Parse reads the text of a scenario file. Unknown settings are errors.
func Parse(text []byte) ([]Spec, error) {
	var file struct {
		Defaults yaml.Node   `yaml:"defaults"`
		Loads    []yaml.Node `yaml:"loads"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		return nil, err
	}
	if len(file.Loads) == 0 {
		return nil, errNoLoads
	}
	var specs []Spec
	for i := range file.Loads {
		var kind struct {
			Kind string `yaml:"kind"`
		}
		if err := file.Loads[i].Decode(&kind); err != nil {
			return nil, err
		}
		s := Defaults(kind.Kind)
		for _, n := range []*yaml.Node{&file.Defaults, &file.Loads[i]} {
			if n.Kind == 0 {
				continue
			}
			if err := decodeKnown(n, &s); err != nil {
				return nil, fmt.Errorf("load %d, line %d: %w", i+1, n.Line, err)
			}
		}
		if err := s.prepare(); err != nil {
			return nil, fmt.Errorf("load %d, line %d: %w", i+1, file.Loads[i].Line, err)
		}
		specs = append(specs, s)
	}
	return specs, nil
}

// decodeKnown is Node.Decode that refuses unknown fields, which the library's own does not.
func decodeKnown(n *yaml.Node, to *Spec) error {
	b, err := yaml.Marshal(n)
	if err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	return d.Decode(to)
}
