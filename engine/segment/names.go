package segment

import (
	"fmt"
	"strconv"
	"strings"
)

// The suffixes of the files of a segment. A snapshot belongs to the log and is named by the offset it ends at.
const (
	LogSuffix       = ".log"
	IndexSuffix     = ".index"
	TimeIndexSuffix = ".timeindex"
	TxnIndexSuffix  = ".txnindex"
	SnapshotSuffix  = ".snapshot"
	DeletedSuffix   = ".deleted" // of a file that is being removed
)

// FileName is Kafka's name of a file: the base offset in 20 digits and a suffix.
func FileName(base int64, suffix string) string { return fmt.Sprintf("%020d%s", base, suffix) }

// ParseName splits a name made by FileName; ok is false for any other.
func ParseName(name string) (base int64, suffix string, ok bool) {
	if len(name) < 22 || name[20] != '.' {
		return 0, "", false
	}
	for _, c := range name[:20] {
		if c < '0' || c > '9' {
			return 0, "", false
		}
	}
	base, err := strconv.ParseInt(name[:20], 10, 64)
	if err != nil || strings.Contains(name[21:], ".") {
		return 0, "", false
	}
	return base, name[20:], true
}
