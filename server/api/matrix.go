package api

import (
	"fmt"
	"io"

	"kaas/codec/api"
)

//go:generate go run ./gen . ../../docs/api-matrix.md ../../docs/api-reference.md

// WriteMatrix writes the table of every API of Apache Kafka 3.7 and what of it is served: the page docs/api-matrix.md.
func WriteMatrix(w io.Writer) error {
	t := joinHandlers()
	served := 0
	for _, h := range t {
		if h != nil {
			served++
		}
	}
	_, err := fmt.Fprintf(w, `<!-- Made by go generate ./server/api from the registry of codec/api and the handlers of server/api. Do not edit. -->

# API matrix

%d of the %d APIs of Apache Kafka 3.7 are served. "Kafka 3.7" lists the versions of its protocol, "served" those that this
broker advertises in ApiVersions. Every version of every API is encoded and decoded, served or not.

| key | API | Kafka 3.7 | served | flexible from | on a broker's listener in Kafka |
|---|---|---|---|---|---|
`, served, len(api.Facts))
	if err != nil {
		return err
	}
	for i := range api.Facts {
		f := &api.Facts[i]
		got, flexible, broker := "–", "never", "yes"
		if h := t[f.Key]; h != nil {
			got = versions(h.min, h.max)
			if h.unstable {
				got += " (unstable)"
			}
		}
		if f.FlexibleFrom != api.Never {
			flexible = fmt.Sprint(f.FlexibleFrom)
		}
		if f.Listeners&api.OnBroker == 0 {
			broker = "no"
		}
		if _, err := fmt.Fprintf(w, "| %d | %s | %s | %s | %s | %s |\n", f.Key, f.Name, versions(f.Min, f.Max), got, flexible, broker); err != nil {
			return err
		}
	}
	return nil
}

// ServedVersions tells which versions of an API are served, for the pages.
func ServedVersions(key int16) (first, last int16, ok bool) {
	for i := range served {
		if h := &served[i]; h.key == key {
			return h.min, h.max, true
		}
	}
	return 0, 0, false
}

// versions writes a range of versions.
func versions(first, last int16) string {
	if first == last {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d–%d", first, last)
}
