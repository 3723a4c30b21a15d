// Command confluentgo puts confluent-kafka for Go (librdkafka) in front of a broker, driven by the tests of server/interop. It is a module of its
// own because it wants cgo, which the broker does not.
//
//	confluentgo group BOOTSTRAP TOPIC STRATEGY   members of a group read TOPIC, which has 40 records in 4 partitions; one line for each step
//	confluentgo txn BOOTSTRAP IN OUT             transactions that copy IN, as above, to OUT; one line for each step
//	confluentgo roll BOOTSTRAP TOPIC GROUP       reads and commits until its standard input ends; one line for each record and commit
//	confluentgo version
package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

const timeout = time.Minute // for each operation

func main() {
	programs := map[string]func(args []string) error{"group": group, "txn": txn, "roll": roll, "version": version}
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "confluentgo group|txn|roll|version ...")
		os.Exit(2)
	}
	if err := programs[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "confluentgo:", err)
		os.Exit(1)
	}
}

func version([]string) error {
	_, v := kafka.LibraryVersion()
	fmt.Println("librdkafka", v)
	return nil
}

// member is a consumer in a group, with what its rebalance callback was told.
type member struct {
	c                 *kafka.Consumer
	assigned, revoked int
}

// join makes a member that subscribes to a topic.
func join(bootstrap, topic, groupID string, more kafka.ConfigMap) (*member, error) {
	config := kafka.ConfigMap{"bootstrap.servers": bootstrap, "group.id": groupID, "enable.auto.commit": false, "auto.offset.reset": "earliest",
		"fetch.wait.max.ms": 20, "heartbeat.interval.ms": 200, "session.timeout.ms": 10000}
	for k, v := range more {
		config[k] = v
	}
	c, err := kafka.NewConsumer(&config)
	if err != nil {
		return nil, err
	}
	m := &member{c: c}
	return m, c.SubscribeTopics([]string{topic}, m.rebalanced)
}

// rebalanced takes what the group gives and gives back what it wants, all at once or bit by bit, as the protocol has it.
func (m *member) rebalanced(c *kafka.Consumer, e kafka.Event) error {
	bits := c.GetRebalanceProtocol() == "COOPERATIVE"
	switch e := e.(type) {
	case kafka.AssignedPartitions:
		m.assigned += len(e.Partitions)
		if bits {
			return c.IncrementalAssign(e.Partitions)
		}
		return c.Assign(e.Partitions)
	case kafka.RevokedPartitions:
		m.revoked += len(e.Partitions)
		if bits {
			return c.IncrementalUnassign(e.Partitions)
		}
		return c.Unassign()
	}
	return fmt.Errorf("rebalance: %v", e)
}

// has is how many partitions the member has.
func (m *member) has() int {
	list, err := m.c.Assignment()
	if err != nil {
		return -1
	}
	return len(list)
}

// read waits for so many records.
func (m *member) read(n int) (got []*kafka.Message, err error) {
	for end := time.Now().Add(timeout); len(got) < n; {
		if time.Now().After(end) {
			return nil, fmt.Errorf("%d of %d records", len(got), n)
		}
		switch e := m.c.Poll(100).(type) {
		case *kafka.Message:
			if e.TopicPartition.Error != nil {
				return nil, e.TopicPartition.Error
			}
			got = append(got, e)
		case kafka.Error:
			if e.IsFatal() || !e.IsRetriable() && e.Code() != kafka.ErrAllBrokersDown && e.Code() != kafka.ErrTransport {
				return nil, e
			}
		}
	}
	return got, nil
}

// until polls members until something is so.
func until(what string, ok func() bool, members ...*member) error {
	for end := time.Now().Add(timeout); !ok(); {
		if time.Now().After(end) {
			return fmt.Errorf("no %s", what)
		}
		for _, m := range members {
			if e, is := m.c.Poll(50).(kafka.Error); is && e.IsFatal() {
				return e
			}
		}
	}
	return nil
}

// places are the partitions that messages come from, each once, in order.
func places(got []*kafka.Message) []int32 {
	var list []int32
	for _, m := range got {
		list = append(list, m.TopicPartition.Partition)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// offsets prints offsets by partition.
func offsets(list []kafka.TopicPartition) (out []string) {
	for _, p := range list {
		out = append(out, fmt.Sprintf("%d:%d", p.Partition, p.Offset))
	}
	slices.Sort(out)
	return out
}

// group has a member read everything, commit, pause, seek and resume; then another one takes its share, and goes; the first one has all again.
func group(args []string) error {
	bootstrap, topic := args[0], args[1]
	id, more := "go-"+topic, kafka.ConfigMap{"partition.assignment.strategy": args[2]}
	one, err := join(bootstrap, topic, id, more)
	if err != nil {
		return err
	}
	got, err := one.read(40)
	if err != nil {
		return err
	}
	fmt.Println("read", len(got), "of", places(got), "assigned", one.assigned, "by", one.c.GetRebalanceProtocol())
	if _, err := one.c.Commit(); err != nil {
		return err
	}
	all, err := one.c.Assignment()
	if err != nil {
		return err
	}
	committed, err := one.c.Committed(all, int(timeout.Milliseconds()))
	if err != nil {
		return err
	}
	fmt.Println("committed", offsets(committed))
	if err := one.pauseAndSeek(topic); err != nil {
		return err
	}
	two, err := join(bootstrap, topic, id, more)
	if err != nil {
		return err
	}
	if err := until("equal shares", func() bool { return one.has() == 2 && two.has() == 2 }, one, two); err != nil {
		return fmt.Errorf("%w: %d and %d", err, one.has(), two.has())
	}
	fmt.Println("shared", one.has(), two.has(), "revoked", one.revoked)
	if err := two.c.Close(); err != nil {
		return err
	}
	if err := until("all of it", func() bool { return one.has() == 4 }, one); err != nil {
		return err
	}
	fmt.Println("left alone", one.has())
	return one.c.Close()
}

// pauseAndSeek pauses partition 0, reads 0 and 1 again from offset 5, and resumes.
func (m *member) pauseAndSeek(topic string) error {
	first := []kafka.TopicPartition{{Topic: &topic, Partition: 0}}
	if err := m.c.Pause(first); err != nil {
		return err
	}
	for p := range int32(2) {
		if err := m.c.Seek(kafka.TopicPartition{Topic: &topic, Partition: p, Offset: 5}, 0); err != nil {
			return err
		}
	}
	got, err := m.read(5)
	if err != nil {
		return err
	}
	fmt.Println("after seek", places(got), "from", got[0].TopicPartition.Offset)
	if err := m.c.Resume(first); err != nil {
		return err
	}
	if got, err = m.read(5); err != nil {
		return err
	}
	fmt.Println("resumed", places(got), "from", got[0].TopicPartition.Offset)
	return nil
}
