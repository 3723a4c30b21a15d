package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"kaas/bench/frames"
)

const (
	answerBytesMax     = 64 << 20
	codeTopicExists    = 36
	codeUnknownTopic   = 3
	codeLeaderNotAvail = 5
)

// Control is a blocking connection for the few requests beside the load.
type Control struct {
	conn net.Conn
	next int32
}

// Dial connects a Control. timeout bounds the dialling and later each request.
func Dial(address string, timeout time.Duration) (*Control, error) {
	conn, err := net.DialTimeout("tcp", address, timeout)
	if err != nil {
		return nil, err
	}
	return &Control{conn: conn}, conn.SetDeadline(time.Now().Add(timeout))
}

// Close closes the connection.
func (c *Control) Close() error { return c.conn.Close() }

// SetDeadline bounds all further requests.
func (c *Control) SetDeadline(t time.Time) error { return c.conn.SetDeadline(t) }

// Ask sends a frame and returns the answer after its correlation id.
func (c *Control) Ask(frame []byte) ([]byte, error) {
	c.next++
	frames.SetCorrelation(frame, c.next)
	if _, err := c.conn.Write(frame); err != nil {
		return nil, err
	}
	var head [frames.ResponseHead]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size < 4 || size > answerBytesMax {
		return nil, fmt.Errorf("answer of %d bytes: %w", size, frames.ErrMalformed)
	}
	if id := int32(binary.BigEndian.Uint32(head[4:])); id != c.next {
		return nil, fmt.Errorf("answer %d to request %d: %w", id, c.next, frames.ErrMalformed)
	}
	body := make([]byte, size-4)
	_, err := io.ReadFull(c.conn, body)
	return body, err
}

// APIVersions returns how many API keys the broker serves.
func (c *Control) APIVersions() (int, error) {
	body, err := c.Ask(frames.APIVersions())
	if err != nil {
		return 0, err
	}
	return frames.APIVersionsAnswer(body)
}

// CreateTopics creates topics of the given number of partitions; one that exists already is no error.
func (c *Control) CreateTopics(partitions int, topics ...string) error {
	body, err := c.Ask(frames.CreateTopics(int32(partitions), 30_000, topics...))
	if err != nil {
		return err
	}
	topic, code, err := frames.CreateTopicsAnswer(body)
	if err == nil && code != 0 && code != codeTopicExists {
		err = &frames.Error{What: "create topic " + topic, Code: code}
	}
	return err
}

// Leaders asks for the leader of every partition of topic.
func (c *Control) Leaders(topic string) (frames.TopicLeaders, error) {
	body, err := c.Ask(frames.Metadata(topic))
	if err != nil {
		return frames.TopicLeaders{}, err
	}
	return frames.MetadataAnswer(body, topic)
}

// Offset is the end (timestamp -1) or the beginning (-2) of a partition.
func (c *Control) Offset(topic string, partition int, timestamp int64) (int64, error) {
	body, err := c.Ask(frames.ListOffsets(topic, int32(partition), timestamp))
	if err != nil {
		return 0, err
	}
	return frames.ListOffsetsAnswer(body)
}

// dialAny connects to the first of brokers that answers.
func dialAny(brokers []string, timeout time.Duration) (*Control, error) {
	all := []error{errors.New("no broker reached")}
	for _, b := range brokers {
		c, err := Dial(b, timeout)
		if err == nil {
			return c, nil
		}
		all = append(all, err)
	}
	return nil, errors.Join(all...)
}

// EnsureTopic makes sure that topic exists, creating it with the given number of partitions (0: it must exist), and returns
// the address of each partition's leader.
func EnsureTopic(brokers []string, topic string, partitions int) ([]string, error) {
	c, err := dialAny(brokers, 30*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if partitions > 0 {
		if err := c.CreateTopics(partitions, topic); err != nil {
			return nil, err
		}
	}
	return c.waitForTopic(topic, partitions)
}

// waitForTopic asks for a topic until all its partitions have leaders. With partitions 0 it must be known at the first look.
func (c *Control) waitForTopic(topic string, partitions int) ([]string, error) {
	for wait := time.Millisecond; ; wait *= 2 {
		t, err := c.Leaders(topic)
		if err != nil {
			return nil, err
		}
		switch {
		case t.Code == 0 && len(t.Leaders) > 0:
			if partitions > 0 && len(t.Leaders) != partitions {
				return nil, fmt.Errorf("topic %s has %d partitions, not %d", topic, len(t.Leaders), partitions)
			}
			return t.Leaders, nil
		case t.Code != codeLeaderNotAvail && t.Code != codeUnknownTopic, partitions == 0 && t.Code == codeUnknownTopic, wait > 4*time.Second:
			return nil, &frames.Error{What: "metadata of topic " + topic, Code: t.Code}
		}
		time.Sleep(wait) // a broker may answer CreateTopics before the leader is known
	}
}
