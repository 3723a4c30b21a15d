package frames

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compressions are the names of Kafka's codecs; the index is the codec's number in the attributes of a batch.
var Compressions = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// compress returns the codec's number and the compressed form of body.
func compress(name string, body []byte) (codec uint16, out []byte, err error) {
	n := slices.Index(Compressions, name)
	var b bytes.Buffer
	var w io.WriteCloser
	switch n {
	case 0:
		return 0, slices.Clone(body), nil
	case 1:
		w = gzip.NewWriter(&b)
	case 2: // a bare block: clients read it as well as the framing of the Java client
		return 2, snappy.Encode(nil, body), nil
	case 3:
		w = lz4.NewWriter(&b)
	case 4:
		if w, err = zstd.NewWriter(&b); err != nil {
			return 0, nil, err
		}
	default:
		return 0, nil, fmt.Errorf("compression %q: there are %s", name, strings.Join(Compressions, ", "))
	}
	if _, err := w.Write(body); err != nil {
		return 0, nil, err
	}
	err = w.Close() // writes the rest
	return uint16(n), b.Bytes(), err
}
