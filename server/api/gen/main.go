// Command gen writes docs/api-matrix.md from the join of the registry with the handlers.
package main

import (
	"bytes"
	"log"
	"os"

	"kaas/server/api"
)

func main() {
	var b bytes.Buffer
	if err := api.WriteMatrix(&b); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(os.Args[1], b.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}
