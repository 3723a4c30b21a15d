package transcripts

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"math/rand"
	"strconv"
	"strings"
)

// scramState is the client's side of one SCRAM exchange (RFC 5802).
type scramState struct {
	mech, firstBare, nonce, serverFirst string
}

func (s *scramState) server(b []byte) {
	if strings.HasPrefix(string(b), "r=") {
		s.serverFirst = string(b)
	}
}

func (s *scramState) clientMessage(o *object) ([]byte, error) {
	str := func(k string) string { x, _ := o.V[k].(string); return x }
	switch str("step") {
	case "first":
		s.mech = str("mechanism")
		s.nonce = fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
		s.firstBare = "n=" + str("user") + ",r=" + s.nonce
		ext := str("extensions")
		if ext != "" {
			s.firstBare += "," + ext
		}
		return []byte("n,," + s.firstBare), nil
	case "final":
		h := sha256.New
		if s.mech == "SCRAM-SHA-512" {
			h = sha512.New
		}
		attr := map[string]string{}
		for _, p := range strings.Split(s.serverFirst, ",") {
			if k, v, ok := strings.Cut(p, "="); ok {
				attr[k] = v
			}
		}
		salt, err := base64.StdEncoding.DecodeString(attr["s"])
		if err != nil {
			return nil, err
		}
		iter, _ := strconv.Atoi(attr["i"])
		salted := pbkdf2(h, []byte(str("password")), salt, iter)
		clientKey := mac(h, salted, "Client Key")
		d := h()
		d.Write(clientKey)
		noProof := "c=biws,r=" + attr["r"]
		sig := mac(h, d.Sum(nil), s.firstBare+","+s.serverFirst+","+noProof)
		for i := range sig {
			sig[i] ^= clientKey[i]
		}
		return []byte(noProof + ",p=" + base64.StdEncoding.EncodeToString(sig)), nil
	}
	return nil, fmt.Errorf("scram step %q", str("step"))
}

func mac(h func() hash.Hash, key []byte, text string) []byte {
	m := hmac.New(h, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

func pbkdf2(h func() hash.Hash, password, salt []byte, iter int) []byte {
	m := hmac.New(h, password)
	m.Write(salt)
	m.Write(binary.BigEndian.AppendUint32(nil, 1))
	u := m.Sum(nil)
	out := append([]byte(nil), u...)
	for i := 1; i < iter; i++ {
		m.Reset()
		m.Write(u)
		u = m.Sum(nil)
		for j := range out {
			out[j] ^= u[j]
		}
	}
	return out
}
