package parsley

import (
	"crypto/md5"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
)

// ErrName is matched by the errors of CheckStage, CheckApplication and CheckTopic.
var ErrName = errors.New("parsley: bad name")

// CheckStage refuses what cannot be the name of a stage: anything but one or more of a-z A-Z 0-9 -.
func CheckStage(name string) error { return checkName("stage", name, "-") }

// CheckApplication refuses what cannot be an application id: anything but one or more of a-z A-Z 0-9 . _ -.
func CheckApplication(id string) error { return checkName("application id", id, "._-") }

// CheckTopic refuses what cannot be a topic of a stage: anything but one or more of a-z A-Z 0-9 . _ -.
func CheckTopic(name string) error { return checkName("topic", name, "._-") }

func checkName(what, name, marks string) error {
	ok := name != ""
	for i := 0; i < len(name) && ok; i++ {
		c := name[i]
		ok = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		for j := 0; j < len(marks) && !ok; j++ {
			ok = c == marks[j]
		}
	}
	if !ok {
		return fmt.Errorf("%w: %s %q: it must be made of a-z A-Z 0-9 and %s", ErrName, what, name, marks)
	}
	return nil
}

// StateStore is the name of the store with a stage's protocol state.
func StateStore(stage string) string { return stage + "-state" }

// FoldStore is the name of the store with a stage's fold state.
func FoldStore(stage string) string { return stage + "-fold" }

// StateChangelog is the topic that a stage's protocol state is logged to: store keys and values, null for deleted.
func StateChangelog(application, stage string) string {
	return application + "-" + StateStore(stage) + "-changelog"
}

// FoldChangelog is the topic that a stage's fold state is logged to.
func FoldChangelog(application, stage string) string {
	return application + "-" + FoldStore(stage) + "-changelog"
}

// TickTopic is the topic that a stage sends its ticks to, and reads them from.
func TickTopic(application, stage string) string { return application + "-" + stage + "-ticks" }

// SourceName is the name of a stage's source in a topology.
func SourceName(stage string) string { return "vc-" + stage + "-source" }

// ProcessorName is the name of a stage's processor in a topology.
func ProcessorName(stage string) string { return "vc-" + stage + "-processor" }

// SinkName is the name of a stage's sink for a topic in a topology.
func SinkName(stage, topic string) string { return "vc-" + stage + "-sink-" + topic }

// SenderID is the identity of the node of one partition of a stage: a version 3 UUID of
// "<application>/<stage>/<partition>" without a namespace, so the same wherever and whenever the node runs.
func SenderID(application, stage string, partition int32) uuid.UUID {
	id := uuid.UUID(md5.Sum([]byte(application + "/" + stage + "/" + strconv.Itoa(int(partition)))))
	id[6] = id[6]&0x0f | 0x30
	id[8] = id[8]&0x3f | 0x80
	return id
}
