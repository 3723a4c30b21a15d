// Command schemagen writes the Go files of codec/api from the message tables. It is run by `go generate ./codec/schema`.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"kaas/codec/schema"
)

func main() {
	out := flag.String("out", "", "directory of codec/api")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "schemagen:", err)
		os.Exit(1)
	}
}

// run writes all generated files and removes those that no table gives any more.
func run(dir string) error {
	tables, err := schema.Load()
	if err != nil {
		return err
	}
	errors, err := schema.LoadErrors()
	if err != nil {
		return err
	}
	files, err := schema.Generate(tables, errors)
	if err != nil {
		return err
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range there {
		if schema.IsGenerated(e.Name()) && files[e.Name()] == nil {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
