// Command gen writes docs/metrics.md from the table of metrics.
package main

import (
	"bytes"
	"log"
	"os"

	"kaas/server/metrics"
)

func main() {
	var b bytes.Buffer
	if err := metrics.WriteDocs(&b); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(os.Args[1], b.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}
