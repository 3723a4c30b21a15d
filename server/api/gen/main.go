// Command gen writes docs/api-matrix.md from the join of the registry with the handlers, and docs/api-reference.md from that join and the
// comments that open the handlers' files.
package main

import (
	"bytes"
	"io"
	"log"
	"os"

	"kaas/server/api"
)

// main is called with the directory of the handlers, the matrix page and the reference page.
func main() {
	handlers, matrix, reference := os.Args[1], os.Args[2], os.Args[3]
	write(matrix, api.WriteMatrix)
	write(reference, func(w io.Writer) error { return writeReference(w, handlers) })
}

// write makes a page; one that cannot be made stays as it was.
func write(file string, page func(io.Writer) error) {
	var b bytes.Buffer
	if err := page(&b); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}
