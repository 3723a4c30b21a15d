package frames

import (
	"errors"
	"fmt"
	"net"
	"strconv"
)

// ErrMalformed is returned for an answer that is not laid out as its version says.
var ErrMalformed = errors.New("malformed answer")

// Error is a Kafka error code in an answer.
type Error struct {
	What string
	Code int16
}

func (e *Error) Error() string { return fmt.Sprintf("%s: Kafka error %d", e.What, e.Code) }

func check(what string, code int16) error {
	if code == 0 {
		return nil
	}
	return &Error{what, code}
}

// cursor reads big-endian fields; after the first that is missing all are zero and bad is set.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n < 0 || n > len(c.b) {
		c.bad = true
		return nil
	}
	head := c.b[:n]
	c.b = c.b[n:]
	return head
}

func (c *cursor) int16() int16 {
	if b := c.take(2); b != nil {
		return int16(be.Uint16(b))
	}
	return 0
}

func (c *cursor) int32() int32 {
	if b := c.take(4); b != nil {
		return int32(be.Uint32(b))
	}
	return 0
}

func (c *cursor) int64() int64 {
	if b := c.take(8); b != nil {
		return int64(be.Uint64(b))
	}
	return 0
}

func (c *cursor) string() string {
	n := c.int16()
	if n < 0 {
		return ""
	}
	return string(c.take(int(n)))
}

// count reads an array length; each element takes at least min bytes, so no count goes beyond what is there.
func (c *cursor) count(min int) int {
	n := int(c.int32())
	if n < 0 {
		return 0
	}
	if n > len(c.b)/min {
		c.bad = true
		return 0
	}
	return n
}

func (c *cursor) err(what string) error {
	if c.bad {
		return fmt.Errorf("%s: %w", what, ErrMalformed)
	}
	return nil
}

// ProduceAnswerBytes is the length of a Produce answer for one partition of a topic whose name has n bytes.
func ProduceAnswerBytes(n int) int { return ProduceErrorAt(n) + 2 + 8 + 8 + 8 + 4 }

// ProduceErrorAt is where the error code of that partition is; the base offset follows it.
func ProduceErrorAt(n int) int { return ResponseHead + 4 + 2 + n + 4 + 4 }

// FetchAnswerBytes is the length of a Fetch answer for one partition up to its record set, for a name of n bytes.
func FetchAnswerBytes(n int) int { return fetchErrorAt(n) + 2 + 3*8 + 4 + 4 + 4 }

func fetchErrorAt(n int) int { return ResponseHead + 4 + 2 + 4 + 4 + 2 + n + 4 + 4 }

// FetchHead reads the part of a Fetch answer before the record set, FetchAnswerBytes long.
func FetchHead(b []byte, topic string) (highWatermark int64, recordBytes int, err error) {
	c := cursor{b: b}
	size := int(c.int32())
	c.take(4 + 4) // correlation id, throttle time
	if err := check("fetch", c.int16()); err != nil {
		return 0, 0, err
	}
	c.take(4)
	if c.int32() != 1 || c.string() != topic || c.int32() != 1 {
		return 0, 0, fmt.Errorf("fetch: %w", ErrMalformed)
	}
	c.take(4)
	if err := check("fetch", c.int16()); err != nil {
		return 0, 0, err
	}
	highWatermark = c.int64()
	c.take(8 + 8)
	if aborted := c.int32(); aborted > 0 {
		return 0, 0, fmt.Errorf("fetch: %d aborted transactions in an answer to read_uncommitted: %w", aborted, ErrMalformed)
	}
	c.take(4)
	recordBytes = max(int(c.int32()), 0)
	if size != len(b)-4+recordBytes {
		return 0, 0, fmt.Errorf("fetch: frame of %d bytes with %d bytes of records: %w", size, recordBytes, ErrMalformed)
	}
	return highWatermark, recordBytes, c.err("fetch")
}

// ListOffsetsAnswer reads the answer to ListOffsets: body is the frame after ResponseHead.
func ListOffsetsAnswer(body []byte) (int64, error) {
	c := cursor{b: body}
	if c.int32() != 1 {
		c.bad = true
	}
	c.string()
	if c.int32() != 1 {
		c.bad = true
	}
	c.take(4)
	code := c.int16()
	c.take(8)
	offset := c.int64()
	if err := check("list offsets", code); err != nil {
		return 0, err
	}
	return offset, c.err("list offsets")
}

// TopicLeaders is what Metadata says about one topic.
type TopicLeaders struct {
	Code    int16    // of the topic, or the first one of its partitions that is not 0
	Leaders []string // host:port of the leader, by partition; empty without one
}

// MetadataAnswer reads an answer about one topic: body is the frame after ResponseHead.
func MetadataAnswer(body []byte, topic string) (TopicLeaders, error) {
	c := cursor{b: body}
	c.int32() // throttle time
	address := map[int32]string{}
	for range c.count(12) {
		id, host, port := c.int32(), c.string(), c.int32()
		c.string() // rack
		address[id] = net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	c.string() // cluster id
	c.int32()  // controller
	var found TopicLeaders
	for range c.count(9) {
		code, name := c.int16(), c.string()
		c.take(1)
		partitions := c.count(18)
		leaders := make([]string, partitions)
		for range partitions {
			partCode, index, leader := c.int16(), c.int32(), c.int32()
			c.take(4 * c.count(4))
			c.take(4 * c.count(4))
			if index < 0 || int(index) >= partitions {
				c.bad = true
				break
			}
			leaders[index] = address[leader]
			if code == 0 {
				code = partCode
			}
		}
		if name == topic {
			found = TopicLeaders{code, leaders}
		}
	}
	return found, c.err("metadata")
}

// CreateTopicsAnswer returns the first error code that is not 0, and its topic.
func CreateTopicsAnswer(body []byte) (topic string, code int16, err error) {
	c := cursor{b: body}
	c.int32() // throttle time
	for range c.count(6) {
		name, e := c.string(), c.int16()
		c.string() // message
		if e != 0 && code == 0 {
			topic, code = name, e
		}
	}
	return topic, code, c.err("create topics")
}

// APIVersionsAnswer returns how many keys are served.
func APIVersionsAnswer(body []byte) (keys int, err error) {
	c := cursor{b: body}
	code := c.int16()
	keys = c.count(6)
	if err := check("api versions", code); err != nil {
		return 0, err
	}
	return keys, c.err("api versions")
}

// DeleteTopicsAnswer returns the first error code that is not 0, and its topic.
func DeleteTopicsAnswer(body []byte) (topic string, code int16, err error) {
	c := cursor{b: body}
	c.int32() // throttle time
	for range c.count(4) {
		name, e := c.string(), c.int16()
		if e != 0 && code == 0 {
			topic, code = name, e
		}
	}
	return topic, code, c.err("delete topics")
}
