package tlsconfig

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
)

// Settings are the ssl.* settings of one listener as they were given; empty means not given.
type Settings struct {
	KeystoreType, KeystoreLocation, KeystorePassword string
	KeystoreKey, KeystoreChain                       string // PEM, in place of a file
	KeyPassword                                      string
	TruststoreType, TruststoreLocation               string
	TruststorePassword                               string
	TruststoreCertificates                           string // PEM, in place of a file
	ClientAuth                                       string // none, requested, required
	Protocol                                         string
	EnabledProtocols, CipherSuites                   []string
	EndpointIdentification                           string
}

// Keys of Apache Kafka that errors name.
const (
	keyKeystoreType       = "ssl.keystore.type"
	keyKeystoreLocation   = "ssl.keystore.location"
	keyKeystorePassword   = "ssl.keystore.password"
	keyKeystoreKey        = "ssl.keystore.key"
	keyKeystoreChain      = "ssl.keystore.certificate.chain"
	keyKeyPassword        = "ssl.key.password"
	keyTruststoreType     = "ssl.truststore.type"
	keyTruststoreLocation = "ssl.truststore.location"
	keyTruststorePassword = "ssl.truststore.password"
	keyTruststoreCerts    = "ssl.truststore.certificates"
	keyClientAuth         = "ssl.client.auth"
	keyProtocol           = "ssl.protocol"
	keyEnabledProtocols   = "ssl.enabled.protocols"
	keyCipherSuites       = "ssl.cipher.suites"
	keyIdentification     = "ssl.endpoint.identification.algorithm"
)

// Error is a setting that cannot be: Key is the one to blame, Text says why and what is allowed. It holds no secret.
type Error struct {
	Key  string
	Text string
}

func (e *Error) Error() string { return e.Key + ": " + e.Text }

func fault(key, format string, args ...any) error { return &Error{key, fmt.Sprintf(format, args...)} }

// versions are the protocols that can be on; older ones are broken, and not spoken.
var versions = map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}

// base is the configuration that does not depend on files.
func (s *Settings) base() (*tls.Config, error) {
	c := &tls.Config{
		// Small first records serve browsers; a broker's peers read whole frames.
		DynamicRecordSizingDisabled: true,
	}
	if !slices.Contains([]string{"TLSv1.3", "TLSv1.2", "TLS"}, s.Protocol) {
		return nil, fault(keyProtocol, "allowed: TLSv1.3, TLSv1.2, TLS")
	}
	if s.EndpointIdentification != "https" && s.EndpointIdentification != "" {
		return nil, fault(keyIdentification, "allowed: https, or empty")
	}
	for _, name := range s.EnabledProtocols {
		v, ok := versions[name]
		if !ok {
			return nil, fault(keyEnabledProtocols, "%q is not spoken; allowed: a list of TLSv1.2, TLSv1.3", name)
		}
		if c.MinVersion == 0 || v < c.MinVersion {
			c.MinVersion = v
		}
		c.MaxVersion = max(c.MaxVersion, v)
	}
	if c.MaxVersion == 0 {
		return nil, fault(keyEnabledProtocols, "at least one is needed of TLSv1.2, TLSv1.3")
	}
	switch s.ClientAuth {
	case "none":
	case "requested":
		c.ClientAuth = tls.VerifyClientCertIfGiven
	case "required":
		c.ClientAuth = tls.RequireAndVerifyClientCert
	default:
		return nil, fault(keyClientAuth, "allowed: none, requested, required")
	}
	return c, s.ciphers(c)
}

// ciphers applies ssl.cipher.suites. Those of TLS 1.3 cannot be chosen in crypto/tls, all are on: a list that leaves out some of them
// would allow more than it says, so it is refused; one without any turns TLS 1.3 off, as in Java.
func (s *Settings) ciphers(c *tls.Config) error {
	if len(s.CipherSuites) == 0 {
		return nil
	}
	var allowed, modern []string
	ids := map[string]uint16{}
	for _, suite := range tls.CipherSuites() {
		allowed = append(allowed, suite.Name)
		ids[suite.Name] = suite.ID
		if slices.Equal(suite.SupportedVersions, []uint16{tls.VersionTLS13}) {
			modern = append(modern, suite.Name)
		}
	}
	chosen := 0
	for _, name := range s.CipherSuites {
		id, ok := ids[name]
		switch {
		case !ok:
			return fault(keyCipherSuites, "%q cannot be had; allowed: %s", name, strings.Join(allowed, ", "))
		case slices.Contains(modern, name):
			chosen++
		default:
			c.CipherSuites = append(c.CipherSuites, id)
		}
	}
	switch {
	case c.MaxVersion == tls.VersionTLS13 && chosen == 0:
		if c.MaxVersion = tls.VersionTLS12; c.MinVersion > c.MaxVersion {
			return fault(keyCipherSuites, "none of them is for TLSv1.3, the only protocol in "+keyEnabledProtocols)
		}
	case c.MaxVersion == tls.VersionTLS13 && chosen < len(modern):
		return fault(keyCipherSuites, "of those of TLSv1.3 all must be on, or none: %s", strings.Join(modern, ", "))
	}
	if c.MinVersion == tls.VersionTLS12 && len(c.CipherSuites) == 0 {
		if c.MaxVersion < tls.VersionTLS13 {
			return fault(keyCipherSuites, "none of them is for TLSv1.2, the only protocol in "+keyEnabledProtocols)
		}
		c.MinVersion = tls.VersionTLS13
	}
	return nil
}
