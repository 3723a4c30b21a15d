package parsley

import (
	"math"
	"strconv"

	"github.com/google/uuid"
)

// Kind says what a key of a node's state store stands for.
type Kind uint8

// The kinds of keys, and what their values are.
const (
	KeyScope      Kind = iota + 1 // scope: Scope
	KeyFrontier                   // f/<channel>: AppendNumber, DecodeFrontier
	KeyAdvertised                 // cc/<channel>: Clock
	KeyCarried                    // ca: Clock
	KeyQueue                      // q/<channel>/m: Queue
	KeyHeld                       // q/<channel>/e/<index>: Held
	KeySent                       // sq/<channel>: AppendNumber, DecodeSent
	KeyMark                       // ds/<channel>/<sender>: Mark
)

// Prefixes of all keys of a kind; those of a queue hold both KeyQueue and KeyHeld, in the order held, queue.
const (
	PrefixFrontier   = "f/"
	PrefixAdvertised = "cc/"
	PrefixQueue      = "q/"
	PrefixSent       = "sq/"
	PrefixMark       = "ds/"
)

const (
	scopeKey    = "scope"
	carriedKey  = "ca"
	indexDigits = 16
	uuidLen     = 36
)

// Key is a key of a node's state store. Fields that its kind does not have are zero.
type Key struct {
	Kind    Kind
	Channel Channel   // all but KeyScope and KeyCarried
	Index   int64     // KeyHeld; >= 0
	Sender  uuid.UUID // KeyMark
}

// Append writes the key. It panics on a Kind that does not exist.
func (k Key) Append(dst []byte) []byte {
	switch k.Kind {
	case KeyScope:
		return append(dst, scopeKey...)
	case KeyCarried:
		return append(dst, carriedKey...)
	case KeyFrontier:
		return k.Channel.Append(append(dst, PrefixFrontier...))
	case KeyAdvertised:
		return k.Channel.Append(append(dst, PrefixAdvertised...))
	case KeySent:
		return k.Channel.Append(append(dst, PrefixSent...))
	case KeyQueue:
		return append(AppendQueuePrefix(dst, k.Channel), 'm')
	case KeyHeld:
		dst = AppendHeldPrefix(dst, k.Channel)
		for shift := 4 * (indexDigits - 1); shift >= 0; shift -= 4 {
			dst = append(dst, hexDigits[uint64(k.Index)>>shift&15])
		}
		return dst
	case KeyMark:
		return appendUUID(AppendMarkPrefix(dst, k.Channel), k.Sender)
	}
	panic("BUG: store key of kind " + strconv.Itoa(int(k.Kind)))
}

// String is the key as text.
func (k Key) String() string { return string(k.Append(nil)) }

// AppendQueuePrefix writes the prefix of the queue of a channel and all that it holds.
func AppendQueuePrefix(dst []byte, ch Channel) []byte {
	return append(ch.Append(append(dst, PrefixQueue...)), '/')
}

// AppendHeldPrefix writes the prefix of the records held on a channel; they scan in the order of their indices.
func AppendHeldPrefix(dst []byte, ch Channel) []byte {
	return append(AppendQueuePrefix(dst, ch), 'e', '/')
}

// AppendMarkPrefix writes the prefix of the delivered marks of a channel.
func AppendMarkPrefix(dst []byte, ch Channel) []byte {
	return append(ch.Append(append(dst, PrefixMark...)), '/')
}

// ParseKey reads a key. Only what Append writes is one, byte for byte.
func ParseKey(b []byte) (Key, error) {
	var k Key
	p := keyParser{b: b}
	switch {
	case string(b) == scopeKey:
		return Key{Kind: KeyScope}, nil
	case string(b) == carriedKey:
		return Key{Kind: KeyCarried}, nil
	case p.skip(PrefixFrontier):
		k = Key{Kind: KeyFrontier, Channel: p.channel()}
	case p.skip(PrefixAdvertised):
		k = Key{Kind: KeyAdvertised, Channel: p.channel()}
	case p.skip(PrefixSent):
		k = Key{Kind: KeySent, Channel: p.channel()}
	case p.skip(PrefixMark):
		k = Key{Kind: KeyMark, Channel: p.channel()}
		p.need("/")
		k.Sender = p.uuid()
	case p.skip(PrefixQueue):
		k.Channel = p.channel()
		if p.skip("/m") {
			k.Kind = KeyQueue
			break
		}
		p.need("/e/")
		k.Kind, k.Index = KeyHeld, p.index()
	default:
		p.bad = true
	}
	if p.bad || p.at != len(b) {
		return Key{}, corrupt("store key", p.at, ErrKey)
	}
	return k, nil
}

// keyParser reads parts of a key off the front. After the first fault bad is set and nothing is read any more.
type keyParser struct {
	b   []byte
	at  int
	bad bool
}

func (p *keyParser) skip(s string) bool {
	if p.bad || len(p.b)-p.at < len(s) || string(p.b[p.at:p.at+len(s)]) != s {
		return false
	}
	p.at += len(s)
	return true
}

func (p *keyParser) need(s string) {
	if !p.skip(s) {
		p.bad = true
	}
}

func (p *keyParser) channel() Channel {
	ch := Channel{Topic: p.uuid()}
	p.need(":")
	ch.Partition = p.partition()
	return ch
}

func (p *keyParser) uuid() (id uuid.UUID) {
	if p.bad || len(p.b)-p.at < uuidLen {
		p.bad = true
		return id
	}
	for i := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			p.need("-")
		}
		id[i] = byte(p.hex()<<4 | p.hex())
	}
	return id
}

// hex reads a lower-case hexadecimal digit.
func (p *keyParser) hex() uint64 {
	if p.bad || p.at == len(p.b) {
		p.bad = true
		return 0
	}
	c := p.b[p.at]
	switch {
	case '0' <= c && c <= '9':
		p.at++
		return uint64(c - '0')
	case 'a' <= c && c <= 'f':
		p.at++
		return uint64(c-'a') + 10
	}
	p.bad = true
	return 0
}

func (p *keyParser) index() int64 {
	var n uint64
	for range indexDigits {
		n = n<<4 | p.hex()
	}
	if n > math.MaxInt64 {
		p.bad = true
	}
	return int64(n)
}

// partition reads a decimal number of 0 to 2^31−1 without sign and leading zeros.
func (p *keyParser) partition() int32 {
	n, from := int64(0), p.at
	for !p.bad && p.at < len(p.b) && '0' <= p.b[p.at] && p.b[p.at] <= '9' {
		n = n*10 + int64(p.b[p.at]-'0')
		if n > math.MaxInt32 {
			p.bad = true
			return 0
		}
		p.at++
	}
	if p.at == from || p.at > from+1 && p.b[from] == '0' {
		p.bad = true
	}
	return int32(n)
}

// AppendTickKey writes the key of a tick record: the partition of the task that made it, and of the topic it goes to.
func AppendTickKey(dst []byte, partition int32) []byte {
	return append(dst, byte(partition>>24), byte(partition>>16), byte(partition>>8), byte(partition))
}

// ParseTickKey reads the key of a tick record; null is corrupt.
func ParseTickKey(b []byte) (partition int32, err error) {
	if len(b) != 4 {
		return 0, corrupt("tick key", 0, ErrLength)
	}
	partition = int32(b[0])<<24 | int32(b[1])<<16 | int32(b[2])<<8 | int32(b[3])
	if partition < 0 {
		return 0, corrupt("tick key", 0, ErrNegative)
	}
	return partition, nil
}

// The first byte of a key of a fold store.
const (
	foldNull byte = iota
	foldKey
	foldTick
)

// AppendFoldKey writes the key under which a fold keeps the state of a record key, which may be null.
func AppendFoldKey(dst, key []byte) []byte {
	if key == nil {
		return append(dst, foldNull)
	}
	return append(append(dst, foldKey), key...)
}

// AppendFoldTickKey writes the key under which a fold keeps the state of its ticks.
func AppendFoldTickKey(dst []byte) []byte { return append(dst, foldTick) }

// ParseFoldKey reads a key of a fold store: the record key (nil: null), or that it is the one for ticks.
func ParseFoldKey(b []byte) (key []byte, tick bool, err error) {
	switch {
	case len(b) == 1 && b[0] == foldNull:
		return nil, false, nil
	case len(b) == 1 && b[0] == foldTick:
		return nil, true, nil
	case len(b) >= 1 && b[0] == foldKey:
		return b[1:], false, nil
	}
	return nil, false, corrupt("fold key", 0, ErrKey)
}
