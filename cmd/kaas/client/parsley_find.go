package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"kaas/cmd/kaas/cli"
	"kaas/codec/parsley"
	"kaas/codec/wire"
)

// field is one thing that was found in the bytes; its value is what JSON makes of it.
type field struct {
	name  string
	value any
}

// finding is all of it, in the order in which it is printed.
type finding []field

func (f *finding) add(name string, value any) { *f = append(*f, field{name, value}) }

// content adds bytes under name, in base64 if they are no text.
func (f *finding) content(name string, b []byte) {
	text, base := cli.Content(b)
	if base != "" {
		name, text = name+"Base64", &base
	}
	f.add(name, text)
}

// MarshalJSON makes an object of the fields in their order.
func (f finding) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, x := range f {
		value, err := json.Marshal(x.value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(strconv.AppendQuote(b, x.name), ':'), value...)
	}
	return append(b, '}'), nil
}

// write prints one field a line; claims and channels follow as tables.
func (f finding) write(out io.Writer) error {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	var tables []func(io.Writer)
	for _, x := range f {
		switch v := x.value.(type) {
		case []claimObject:
			fmt.Fprintf(w, "%s\t%d\n", x.name, len(v))
			tables = append(tables, func(w io.Writer) { claimTable(w, v) })
		case []channelObject:
			fmt.Fprintf(w, "%s\t%d\n", x.name, len(v))
			tables = append(tables, func(w io.Writer) { channelTable(w, x.name, v) })
		case []headerObject:
			for _, h := range v {
				text := h.Value
				if h.ValueBase64 != "" {
					text = &h.ValueBase64
				}
				fmt.Fprintf(w, "header %s\t%s\n", h.Key, quoted(text))
			}
		case *string:
			fmt.Fprintf(w, "%s\t%s\n", x.name, quoted(v))
		default:
			fmt.Fprintf(w, "%s\t%v\n", x.name, v)
		}
	}
	for _, table := range tables {
		table(w)
	}
	w.Flush()
	_, err := out.Write(b.Bytes())
	return err
}

func quoted(s *string) string {
	if s == nil {
		return "null"
	}
	return strconv.Quote(*s)
}

// channelObject is a channel, or a topic, with what the broker calls it where it was asked.
type channelObject struct {
	Topic     string `json:"topic,omitempty"`
	TopicID   string `json:"topicId"` // as Kafka's tools print it
	UUID      string `json:"uuid"`    // as store keys have it
	Partition *int32 `json:"partition,omitempty"`
}

type claimObject struct {
	channelObject
	Sender   string `json:"sender,omitempty"`
	Offset   *int64 `json:"offset,omitempty"`
	Sequence *int64 `json:"sequence,omitempty"`
}

// name is the topic's name where it is known.
func (c *channelObject) name() string {
	if c.Topic == "" {
		return "?"
	}
	return c.Topic
}

func claimTable(w io.Writer, claims []claimObject) {
	if len(claims) == 0 {
		return
	}
	fmt.Fprintln(w, "\nCLAIM\tUP TO\tPARTITION\tTOPIC\tTOPIC ID\tUUID\tSENDER")
	for i := range claims {
		c := &claims[i]
		kind, n, sender := "offset", c.Offset, "any"
		if c.Sequence != nil {
			kind, n, sender = "sequence", c.Sequence, c.Sender
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%s\n", kind, *n, *c.Partition, c.name(), c.TopicID, c.UUID, sender)
	}
}

func channelTable(w io.Writer, title string, channels []channelObject) {
	if len(channels) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\tTOPIC\tTOPIC ID\tUUID\n", strings.ToUpper(title))
	for i := range channels {
		c, partition := &channels[i], "all"
		if c.Partition != nil {
			partition = strconv.Itoa(int(*c.Partition))
		}
		fmt.Fprintf(w, "partition %s\t%s\t%s\t%s\n", partition, c.name(), c.TopicID, c.UUID)
	}
}

// decoder makes findings.
type decoder struct {
	rules parsley.Rules
	names map[uuid.UUID]string // of topics; may be nil
}

// kinds are what --as takes for bytes that stand alone.
var kinds = map[string]func(d *decoder, b []byte) (finding, error){
	"clock":                (*decoder).clock,
	parsley.HeaderClock:    (*decoder).clock,
	parsley.HeaderSender:   (*decoder).sender,
	parsley.HeaderSequence: (*decoder).sequence,
	"held":                 (*decoder).held,
	"key":                  (*decoder).storeKey,
	"tick":                 (*decoder).tick,
	"fold":                 (*decoder).fold,
}

func (d *decoder) topic(id uuid.UUID) channelObject {
	return channelObject{Topic: d.names[id], TopicID: wire.UUID(id).String(), UUID: id.String()}
}

func (d *decoder) channel(ch parsley.Channel) channelObject {
	o := d.topic(ch.Topic)
	o.Partition = &ch.Partition
	return o
}

func (d *decoder) claims(c *parsley.Clock) []claimObject {
	all := make([]claimObject, 0, c.Width())
	for _, e := range c.Offsets() {
		all = append(all, claimObject{channelObject: d.channel(e.Key), Offset: &e.N})
	}
	for _, e := range c.Sequences() {
		all = append(all, claimObject{channelObject: d.channel(e.Key.Channel), Sender: e.Key.Sender.String(), Sequence: &e.N})
	}
	return all
}

func (d *decoder) clock(b []byte) (finding, error) {
	var c parsley.Clock
	if err := c.Decode(b, d.rules); err != nil {
		return nil, err
	}
	return finding{{"kind", "clock"}, {"bytes", len(b)}, {"claims", d.claims(&c)}}, nil
}

// stamp is what the headers of a record say.
func (d *decoder) stamp(h *parsley.Headers) (finding, error) {
	var s parsley.Stamp
	if err := s.Decode(h, d.rules); err != nil {
		return nil, err
	}
	var f finding
	if s.Tagged {
		f.add("sender", s.Sender.String())
		f.add("sequence", s.Sequence)
	}
	if s.HasClock {
		f.add("claims", d.claims(&s.Clock))
	}
	return f, nil
}

func (d *decoder) sender(b []byte) (finding, error) {
	id, err := parsley.DecodeSender(b)
	return finding{{"kind", parsley.HeaderSender}, {"sender", id.String()}}, err
}

func (d *decoder) sequence(b []byte) (finding, error) {
	n, err := parsley.DecodeSequence(b, d.rules)
	return finding{{"kind", parsley.HeaderSequence}, {"sequence", n}}, err
}

func (d *decoder) held(b []byte) (finding, error) {
	var h parsley.Held
	if err := h.Decode(b, d.rules); err != nil {
		return nil, err
	}
	f := finding{{"kind", "held record"}, {"offset", h.Offset}, {"timestamp", h.Timestamp}}
	if h.Tagged {
		f.add("sender", h.Sender.String())
		f.add("sequence", h.Sequence)
	}
	f.content("key", h.Key)
	f.content("value", h.Value)
	headers := make([]headerObject, len(h.Headers))
	for i, x := range h.Headers {
		headers[i].Key = x.Key
		headers[i].Value, headers[i].ValueBase64 = cli.Content(x.Value)
	}
	f.add("headers", headers)
	f.add("claims", d.claims(&h.Clock))
	return f, nil
}

// keyNames says what the keys of a state store stand for.
var keyNames = map[parsley.Kind]string{
	parsley.KeyScope: "scope", parsley.KeyFrontier: "frontier", parsley.KeyAdvertised: "advertised clock", parsley.KeyCarried: "carried ancestry",
	parsley.KeyQueue: "hold queue", parsley.KeyHeld: "held record", parsley.KeySent: "send sequence", parsley.KeyMark: "delivered mark",
}

func (d *decoder) storeKey(b []byte) (finding, error) {
	k, err := parsley.ParseKey(b)
	if err != nil {
		return nil, err
	}
	return d.keyFields(k), nil
}

func (d *decoder) keyFields(k parsley.Key) finding {
	f := finding{{"kind", "store key"}, {"key", k.String()}, {"of", keyNames[k.Kind]}}
	if k.Kind == parsley.KeyScope || k.Kind == parsley.KeyCarried {
		return f
	}
	ch := d.channel(k.Channel)
	if ch.Topic != "" {
		f.add("topic", ch.Topic)
	}
	f.add("topicId", ch.TopicID)
	f.add("partition", k.Channel.Partition)
	switch k.Kind {
	case parsley.KeyHeld:
		f.add("index", k.Index)
	case parsley.KeyMark:
		f.add("sender", k.Sender.String())
	}
	return f
}

// entry is a key of a state store with its value; nil: deleted.
func (d *decoder) entry(key, value []byte) (finding, error) {
	k, err := parsley.ParseKey(key)
	if err != nil {
		return nil, err
	}
	f := d.keyFields(k)
	f[0].value = "store entry"
	if value == nil {
		f.add("deleted", true)
		return f, nil
	}
	more, err := d.value(k.Kind, value)
	if err != nil {
		return nil, fmt.Errorf("value of %s: %w", k, err)
	}
	return append(f, more...), nil
}

func (d *decoder) value(kind parsley.Kind, b []byte) (f finding, err error) {
	switch kind {
	case parsley.KeyScope:
		var s parsley.Scope
		err = s.Decode(b, d.rules)
		channels, sinks := make([]channelObject, 0, len(s.Channels)), make([]channelObject, 0, len(s.Sinks))
		for _, c := range s.Channels {
			channels = append(channels, d.channel(c))
		}
		for _, id := range s.Sinks {
			sinks = append(sinks, d.topic(id))
		}
		f = finding{{"channels", channels}, {"sinks", sinks}}
	case parsley.KeyFrontier:
		var n int64
		n, err = parsley.DecodeFrontier(b, d.rules)
		f = finding{{"offset", n}}
	case parsley.KeySent:
		var n int64
		n, err = parsley.DecodeSent(b, d.rules)
		f = finding{{"sequence", n}}
	case parsley.KeyQueue:
		var q parsley.Queue
		q, err = parsley.DecodeQueue(b, d.rules)
		f = finding{{"head", q.Head}, {"tail", q.Tail}, {"held", q.Tail - q.Head}}
	case parsley.KeyMark:
		var m parsley.Mark
		m, err = parsley.DecodeMark(b, d.rules)
		f = finding{{"sequence", m.Sequence}, {"offset", m.Offset}}
	case parsley.KeyHeld:
		if f, err = d.held(b); err == nil {
			f = f[1:] // the kind is that of the entry
			renamed(f, "key", "recordKey")
		}
	default:
		if f, err = d.clock(b); err == nil {
			f = f[1:]
		}
	}
	return f, err
}

// renamed gives a field another name, in base64 too: an entry has a key of its own.
func renamed(f finding, from, to string) {
	for i := range f {
		switch f[i].name {
		case from:
			f[i].name = to
		case from + "Base64":
			f[i].name = to + "Base64"
		}
	}
}

func (d *decoder) tick(b []byte) (finding, error) {
	p, err := parsley.ParseTickKey(b)
	return finding{{"kind", "tick key"}, {"partition", p}}, err
}

func (d *decoder) fold(b []byte) (finding, error) {
	key, tick, err := parsley.ParseFoldKey(b)
	f := finding{{"kind", "fold key"}, {"tick", tick}}
	if !tick {
		f.content("key", key)
	}
	return f, err
}

// record is where a record of a topic is, and what its headers say.
func (d *decoder) record(r *kgo.Record, id uuid.UUID) (finding, error) {
	f := finding{{"kind", "record"}, {"topic", r.Topic}, {"topicId", wire.UUID(id).String()}, {"partition", r.Partition}, {"offset", r.Offset}, {"timestamp", r.Timestamp.UnixMilli()}}
	var h parsley.Headers
	for _, x := range r.Headers {
		h.Add(x.Key, x.Value)
	}
	stamp, err := d.stamp(&h)
	if err == nil && len(stamp) == 0 {
		f.add("stamp", nil)
	}
	return append(f, stamp...), err
}
