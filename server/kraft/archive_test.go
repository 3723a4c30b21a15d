package kraft_test

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"kaas/server/kraft"
)

// The archives in testdata hold data directories as Apache Kafka 3.7.2 wrote them, stopped in good order and killed; beside them is what
// Apache, started again on them, then gave to a consumer and an admin client.

// unpack extracts a data directory and returns its path; of partitions only those named, if any are. (A partition without a directory is
// empty.)
func unpack(t testing.TB, name string, partitions ...string) string {
	t.Helper()
	skip := func(path string) bool {
		dir, _, _ := strings.Cut(strings.TrimPrefix(filepath.ToSlash(path), "data/"), "/")
		return len(partitions) > 0 && dir != kraft.MetadataDir && strings.Contains(dir, "-") && unicode.IsDigit(rune(dir[len(dir)-1])) && !slices.Contains(partitions, dir)
	}
	to := t.TempDir()
	r := tar.NewReader(gunzip(t, name+".tar.gz"))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(to, "data")
		}
		if err != nil {
			t.Fatal(err)
		}
		if skip(filepath.Clean(h.Name)) {
			continue
		}
		path := filepath.Join(to, filepath.Clean("/"+h.Name))
		if h.FileInfo().IsDir() {
			err = os.MkdirAll(path, 0o755)
		} else {
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, b, 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func gunzip(t testing.TB, name string) io.Reader {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// partition names one.
type partition struct {
	topic string
	index int32
}

// record is what a consumer sees of one.
type record struct {
	Topic     string            `json:"topic"`
	Partition int32             `json:"partition"`
	Offset    int64             `json:"offset"`
	Timestamp int64             `json:"timestamp"`
	Key       *string           `json:"key"`
	Value     *string           `json:"value"`
	Headers   map[string]string `json:"headers"`
}

// recorded reads what Apache gave to a consumer.
func recorded(t testing.TB, name string) map[partition][]record {
	t.Helper()
	out := map[partition][]record{}
	for s := bufio.NewScanner(gunzip(t, name+".jsonl.gz")); s.Scan(); {
		var r record
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		p := partition{r.Topic, r.Partition}
		out[p] = append(out[p], r)
	}
	return out
}

// observed is what an admin client saw.
type observed struct {
	Cluster string
	Configs map[string]map[string]string
	Groups  map[string]map[string]struct {
		Offset   int64
		Metadata string
	}
	Offsets map[string]struct {
		Start, End int64
		LastStable *int64 `json:"last_stable"`
	}
	Topics map[string]struct {
		ID         []byte
		Partitions int
	}
}

func readState(t testing.TB, name string) observed {
	t.Helper()
	var s observed
	b, err := os.ReadFile(filepath.Join("testdata", name+"-state.json"))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tree reads all files below dir; directories end in '/'.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if d.IsDir() {
			out[name+"/"] = ""
			return nil
		}
		b, err := os.ReadFile(filepath.Join(dir, name))
		out[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
