package logtool

import (
	"encoding/binary"
	"fmt"
	"strings"

	"kaas/codec/api"
	"kaas/codec/batch"
	"kaas/codec/wire"
)

// Key versions of __consumer_offsets: offsets and groups of the classic protocol. The next are those of consumerGroup.
const (
	lastOffsetKey = 1
	groupKey      = 2
)

// offsetCommitObject is the record of a committed offset. What the version of its value does not have is not given.
type offsetCommitObject struct {
	Type            string `json:"type"`
	File            string `json:"file"`
	Offset          int64  `json:"offset"`
	Timestamp       int64  `json:"timestamp"`
	Group           string `json:"group"`
	Topic           string `json:"topic"`
	Partition       int32  `json:"partition"`
	Removed         bool   `json:"removed,omitempty"` // a tombstone: nothing follows
	Committed       *int64 `json:"committedOffset,omitempty"`
	LeaderEpoch     *int32 `json:"leaderEpoch,omitempty"`
	Metadata        string `json:"metadata,omitempty"`
	CommitTimestamp int64  `json:"commitTimestamp,omitempty"`
	ExpireTimestamp *int64 `json:"expireTimestamp,omitempty"`
}

// groupObject is the record of a group as it was when its members had their assignments, or had gone.
type groupObject struct {
	Type         string         `json:"type"`
	File         string         `json:"file"`
	Offset       int64          `json:"offset"`
	Timestamp    int64          `json:"timestamp"`
	Group        string         `json:"group"`
	Removed      bool           `json:"removed,omitempty"` // a tombstone: nothing follows
	ProtocolType string         `json:"protocolType,omitempty"`
	Protocol     *string        `json:"protocol,omitempty"`
	Generation   int32          `json:"generation,omitempty"`
	Leader       *string        `json:"leader,omitempty"`
	Since        *int64         `json:"currentStateTimestamp,omitempty"`
	Members      []memberObject `json:"members,omitempty"`
}

// memberObject is a member; its subscription and assignment are told as the consumer protocol has them, or else by their size.
type memberObject struct {
	ID               string           `json:"memberId"`
	Instance         *string          `json:"groupInstanceId,omitempty"`
	ClientID         string           `json:"clientId"`
	ClientHost       string           `json:"clientHost"`
	SessionTimeout   int32            `json:"sessionTimeout"`
	RebalanceTimeout *int32           `json:"rebalanceTimeout,omitempty"`
	Topics           []string         `json:"topics,omitempty"`
	Assigned         []assignedObject `json:"assigned,omitempty"`
	Subscription     int              `json:"subscriptionBytes"`
	Assignment       int              `json:"assignmentBytes"`
}

type assignedObject struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
}

// grouped prints a record of __consumer_offsets decoded. False: it is another kind of record, and printed as any.
func (p *batchPrinter) grouped(c *batch.Cursor, pos int64) bool {
	key := c.Key()
	if len(key) < 2 {
		return false
	}
	var err error
	switch version := int16(binary.BigEndian.Uint16(key)); {
	case version >= 0 && version <= lastOffsetKey:
		err = p.offsetCommit(c)
	case version == groupKey:
		err = p.groupMetadata(c)
	case version >= firstConsumerKey && version <= lastConsumerKey:
		err = p.consumerGroup(version, c)
	default:
		return false
	}
	if err != nil {
		p.d.report(&Problem{p.path, pos, fmt.Sprintf("record at offset %d: %v", c.Offset(), err)})
		return false
	}
	return true
}

// versioned decodes what begins with its version.
func versioned(b []byte, m api.Message) (version int16, err error) {
	r := wire.NewReader(b)
	version = r.Int16()
	m.Decode(&r, version)
	if r.Err() != nil {
		err = fmt.Errorf("%T version %d: %w", m, version, r.Err())
	}
	return version, err
}

func (p *batchPrinter) offsetCommit(c *batch.Cursor) error {
	var k api.OffsetCommitKey
	if _, err := versioned(c.Key(), &k); err != nil {
		return err
	}
	o := offsetCommitObject{Type: "offsetCommit", File: p.path, Offset: c.Offset(), Timestamp: c.Timestamp(), Group: k.Group, Topic: k.Topic, Partition: k.Partition}
	line := fmt.Sprintf("  offset=%d time=%s offset-commit group=%q topic=%q partition=%d", o.Offset, clock(o.Timestamp), k.Group, k.Topic, k.Partition)
	if c.Value() == nil {
		o.Removed = true
		p.d.text("%s removed", line)
		p.d.object(o)
		return nil
	}
	var v api.OffsetCommitValue
	version, err := versioned(c.Value(), &v)
	if err != nil {
		return err
	}
	o.Committed, o.Metadata, o.CommitTimestamp = &v.Offset, v.Metadata, v.CommitTimestamp
	line += fmt.Sprintf(" committed=%d", v.Offset)
	if version >= 3 {
		o.LeaderEpoch = &v.LeaderEpoch
		line += fmt.Sprintf(" leader-epoch=%d", v.LeaderEpoch)
	}
	line += fmt.Sprintf(" metadata=%q commit-time=%s", v.Metadata, clock(v.CommitTimestamp))
	if version == 1 {
		o.ExpireTimestamp = &v.ExpireTimestamp
		line += " expires=" + clock(v.ExpireTimestamp)
	}
	p.d.text("%s", line)
	p.d.object(o)
	return nil
}

func (p *batchPrinter) groupMetadata(c *batch.Cursor) error {
	var k api.GroupMetadataKey
	if _, err := versioned(c.Key(), &k); err != nil {
		return err
	}
	o := groupObject{Type: "groupMetadata", File: p.path, Offset: c.Offset(), Timestamp: c.Timestamp(), Group: k.Group}
	line := fmt.Sprintf("  offset=%d time=%s group-metadata group=%q", o.Offset, clock(o.Timestamp), k.Group)
	if c.Value() == nil {
		o.Removed = true
		p.d.text("%s removed", line)
		p.d.object(o)
		return nil
	}
	var v api.GroupMetadataValue
	version, err := versioned(c.Value(), &v)
	if err != nil {
		return err
	}
	o.ProtocolType, o.Protocol, o.Generation, o.Leader = v.ProtocolType, optional(v.Protocol), v.Generation, optional(v.Leader)
	line += fmt.Sprintf(" protocol-type=%q protocol=%s generation=%d leader=%s", v.ProtocolType, shown(v.Protocol), v.Generation, shown(v.Leader))
	if version >= 2 {
		o.Since = &v.CurrentStateTimestamp
		line += " since=" + clock(v.CurrentStateTimestamp)
	}
	p.d.text("%s members=%d", line, len(v.Members))
	for i := range v.Members {
		m := memberOf(&v.Members[i], version)
		o.Members = append(o.Members, m)
		p.d.text("    %s", m.line())
	}
	p.d.object(o)
	return nil
}

func memberOf(m *api.GroupMetadataValueMemberMetadata, version int16) memberObject {
	o := memberObject{ID: m.MemberId, Instance: optional(m.GroupInstanceId), ClientID: m.ClientId, ClientHost: m.ClientHost, SessionTimeout: m.SessionTimeout,
		Subscription: len(m.Subscription), Assignment: len(m.Assignment)}
	if version >= 1 {
		o.RebalanceTimeout = &m.RebalanceTimeout
	}
	// Every version of the consumer protocol begins as version 0 does.
	var s api.ConsumerProtocolSubscription
	r := wire.NewReader(m.Subscription)
	if r.Int16() >= 0 {
		if s.Decode(&r, 0); !r.Failed() {
			o.Topics = s.Topics
		}
	}
	var a api.ConsumerProtocolAssignment
	r = wire.NewReader(m.Assignment)
	if r.Int16() >= 0 {
		if a.Decode(&r, 0); !r.Failed() {
			for _, t := range a.AssignedPartitions {
				o.Assigned = append(o.Assigned, assignedObject{t.Topic, t.Partitions})
			}
		}
	}
	return o
}

// line is a member as text.
func (m *memberObject) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "member=%q", m.ID)
	if m.Instance != nil {
		fmt.Fprintf(&b, " instance=%q", *m.Instance)
	}
	fmt.Fprintf(&b, " client=%q host=%q session-ms=%d", m.ClientID, m.ClientHost, m.SessionTimeout)
	if m.RebalanceTimeout != nil {
		fmt.Fprintf(&b, " rebalance-ms=%d", *m.RebalanceTimeout)
	}
	if m.Topics != nil {
		fmt.Fprintf(&b, " topics=%q", m.Topics)
	} else {
		fmt.Fprintf(&b, " subscription-bytes=%d", m.Subscription)
	}
	if m.Assigned == nil {
		fmt.Fprintf(&b, " assignment-bytes=%d", m.Assignment)
	}
	for _, a := range m.Assigned {
		fmt.Fprintf(&b, " assigned=%q%v", a.Topic, a.Partitions)
	}
	return b.String()
}

// optional is a string or nil for null.
func optional(s wire.NullString) *string {
	if !s.Valid {
		return nil
	}
	return &s.String
}

// shown is a string that may be null.
func shown(s wire.NullString) string {
	if !s.Valid {
		return "null"
	}
	return readable([]byte(s.String))
}
