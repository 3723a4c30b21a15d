package tlsconfig

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"github.com/youmark/pkcs8"
	"software.sslmate.com/src/go-pkcs12"
)

// storeBytesMax bounds a store: the largest truststores of public authorities have a few hundred KiB.
const storeBytesMax = 16 << 20

// storeTypes are those that can be read.
const storeTypes = "PEM, JKS, PKCS12"

// jksMagic begins a JKS file. Java reads JKS and PKCS12 files under the name of either, and so do we.
var jksMagic = []byte{0xfe, 0xed, 0xfe, 0xed}

// keystore reads the certificates of the listener with their keys.
func (s *Settings) keystore() ([]tls.Certificate, error) {
	isPEM := s.KeystoreType == "PEM"
	switch {
	case !isPEM && s.KeystoreType != "JKS" && s.KeystoreType != "PKCS12":
		return nil, fault(keyKeystoreType, "allowed: %s", storeTypes)
	case s.KeystoreKey != "" || s.KeystoreChain != "":
		return s.inlineKeystore()
	case s.KeystoreLocation == "":
		return nil, fault(keyKeystoreLocation, "a TLS listener needs a key store: set it, or %s and %s", keyKeystoreKey, keyKeystoreChain)
	case isPEM && s.KeystorePassword != "":
		return nil, fault(keyKeystorePassword, "a PEM file has none; the key's own is %s", keyKeyPassword)
	case !isPEM && s.KeystorePassword == "":
		return nil, fault(keyKeystorePassword, "a %s key store needs its password", s.KeystoreType)
	}
	data, err := readStore(s.KeystoreLocation)
	if err != nil {
		return nil, fault(keyKeystoreLocation, "%v", err)
	}
	var certs []tls.Certificate
	switch {
	case isPEM:
		var cert tls.Certificate
		if cert, err = pemKeystore(data, data, s.KeyPassword); err == nil {
			certs = append(certs, cert)
		}
	case bytes.HasPrefix(data, jksMagic):
		certs, err = jksKeystore(data, s.KeystorePassword, s.KeyPassword)
	default:
		certs, err = pkcs12Keystore(data, s.KeystorePassword)
	}
	if err != nil {
		return nil, fault(keyKeystoreLocation, "%s: %v", s.KeystoreLocation, err)
	}
	return certs, nil
}

// inlineKeystore reads the key and the chain that stand in the settings.
func (s *Settings) inlineKeystore() ([]tls.Certificate, error) {
	switch {
	case s.KeystoreType != "PEM":
		return nil, fault(keyKeystoreType, "%s and %s are PEM; so must this be", keyKeystoreKey, keyKeystoreChain)
	case s.KeystoreKey == "":
		return nil, fault(keyKeystoreKey, "it is needed beside %s", keyKeystoreChain)
	case s.KeystoreChain == "":
		return nil, fault(keyKeystoreChain, "it is needed beside %s", keyKeystoreKey)
	case s.KeystoreLocation != "":
		return nil, fault(keyKeystoreLocation, "it cannot be set together with %s", keyKeystoreKey)
	case s.KeystorePassword != "":
		return nil, fault(keyKeystorePassword, "PEM has none; the key's own is %s", keyKeyPassword)
	}
	cert, err := pemKeystore([]byte(s.KeystoreKey), []byte(s.KeystoreChain), s.KeyPassword)
	if err != nil {
		return nil, fault(keyKeystoreKey, "%v", err)
	}
	return []tls.Certificate{cert}, nil
}

// truststore reads the certificates that clients' are checked against; nil: there is none.
func (s *Settings) truststore() (*x509.CertPool, error) {
	isPEM := s.TruststoreType == "PEM"
	switch {
	case !isPEM && s.TruststoreType != "JKS" && s.TruststoreType != "PKCS12":
		return nil, fault(keyTruststoreType, "allowed: %s", storeTypes)
	case s.TruststoreCertificates != "" && !isPEM:
		return nil, fault(keyTruststoreType, "%s is PEM; so must this be", keyTruststoreCerts)
	case s.TruststoreCertificates != "" && s.TruststoreLocation != "":
		return nil, fault(keyTruststoreLocation, "it cannot be set together with %s", keyTruststoreCerts)
	case isPEM && s.TruststorePassword != "":
		return nil, fault(keyTruststorePassword, "PEM has none")
	case s.TruststoreCertificates != "":
		pool, err := pool(pemCertificates([]byte(s.TruststoreCertificates)))
		if err != nil {
			return nil, fault(keyTruststoreCerts, "%v", err)
		}
		return pool, nil
	case s.TruststoreLocation == "" && s.TruststorePassword != "":
		return nil, fault(keyTruststorePassword, "there is no %s", keyTruststoreLocation)
	case s.TruststoreLocation == "" && s.ClientAuth != "none":
		return nil, fault(keyClientAuth, "certificates of clients are checked against a trust store: set %s, or %s", keyTruststoreLocation, keyTruststoreCerts)
	case s.TruststoreLocation == "":
		return nil, nil
	}
	data, err := readStore(s.TruststoreLocation)
	if err != nil {
		return nil, fault(keyTruststoreLocation, "%v", err)
	}
	var certs []*x509.Certificate
	switch {
	case isPEM:
		certs, err = pemCertificates(data)
	case bytes.HasPrefix(data, jksMagic):
		certs, err = jksTruststore(data, s.TruststorePassword)
	default:
		certs, err = pkcs12.DecodeTrustStore(data, s.TruststorePassword)
	}
	trusted, err := pool(certs, err)
	if err != nil {
		return nil, fault(keyTruststoreLocation, "%s: %v", s.TruststoreLocation, err)
	}
	return trusted, nil
}

func readStore(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > storeBytesMax {
		return nil, fmt.Errorf("%s: want a file of at most %d bytes", path, storeBytesMax)
	}
	return os.ReadFile(path)
}

// pool refuses a trust store without certificates: nobody could be trusted, which nobody wants to say that way.
func pool(certs []*x509.Certificate, err error) (*x509.CertPool, error) {
	if err != nil {
		return nil, err
	}
	if len(certs) == 0 {
		return nil, errors.New("there is no trusted certificate in it")
	}
	p := x509.NewCertPool()
	for _, c := range certs {
		p.AddCert(c)
	}
	return p, nil
}

func pemCertificates(data []byte) (certs []*x509.Certificate, err error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, err
			}
			certs = append(certs, c)
		}
	}
	return certs, nil
}

// pemKeystore reads the first private key of one text and the chain of certificates of another, or the same.
func pemKeystore(keyText, chain []byte, password string) (tls.Certificate, error) {
	var key any
	for block, rest := pem.Decode(keyText); block != nil && key == nil; block, rest = pem.Decode(rest) {
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "ENCRYPTED PRIVATE KEY":
			if password == "" {
				return tls.Certificate{}, errors.New("the key is encrypted and there is no " + keyKeyPassword)
			}
			if key, err = pkcs8.ParsePKCS8PrivateKey(block.Bytes, []byte(password)); err != nil {
				err = fmt.Errorf("the key cannot be decrypted; is %s right? %w", keyKeyPassword, err)
			}
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		}
		if err != nil {
			return tls.Certificate{}, err
		}
	}
	if key == nil {
		return tls.Certificate{}, errors.New("there is no private key in it")
	}
	certs, err := pemCertificates(chain)
	if err != nil {
		return tls.Certificate{}, err
	}
	return certificate(key, certs)
}

// certificate joins a key with its chain, and checks that they belong together.
func certificate(key any, chain []*x509.Certificate) (cert tls.Certificate, err error) {
	signer, ok := key.(crypto.Signer)
	if !ok {
		return cert, fmt.Errorf("a key of type %T cannot sign", key)
	}
	if len(chain) == 0 {
		return cert, errors.New("there is no certificate in it")
	}
	public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(chain[0].PublicKey) {
		return cert, fmt.Errorf("the private key does not belong to the first certificate (%s)", chain[0].Subject)
	}
	cert.PrivateKey, cert.Leaf = signer, chain[0]
	for _, c := range chain {
		cert.Certificate = append(cert.Certificate, c.Raw)
	}
	return cert, nil
}

func pkcs12Keystore(data []byte, password string) ([]tls.Certificate, error) {
	key, leaf, chain, err := pkcs12.DecodeChain(data, password)
	if err != nil {
		return nil, err
	}
	cert, err := certificate(key, append([]*x509.Certificate{leaf}, chain...))
	return []tls.Certificate{cert}, err
}

// openJKS reads a JKS file and checks its password.
func openJKS(data []byte, password string) (keystore.KeyStore, error) {
	store := keystore.New()
	err := store.Load(bytes.NewReader(data), []byte(password))
	return store, err
}

// jksKeystore reads every key of a JKS file; the one that suits a client is served.
func jksKeystore(data []byte, password, keyPassword string) (certs []tls.Certificate, err error) {
	store, err := openJKS(data, password)
	if err != nil {
		return nil, err
	}
	if keyPassword == "" {
		keyPassword = password
	}
	for _, alias := range sorted(store.Aliases()) {
		if !store.IsPrivateKeyEntry(alias) {
			continue
		}
		entry, err := store.GetPrivateKeyEntry(alias, []byte(keyPassword))
		if err != nil {
			return nil, fmt.Errorf("key %s: is %s right? %w", alias, keyKeyPassword, err)
		}
		key, err := x509.ParsePKCS8PrivateKey(entry.PrivateKey)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", alias, err)
		}
		chain, err := jksCertificates(entry.CertificateChain)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", alias, err)
		}
		cert, err := certificate(key, chain)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", alias, err)
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("there is no private key in it")
	}
	return certs, nil
}

// jksTruststore reads the trusted certificates of a JKS file.
func jksTruststore(data []byte, password string) (certs []*x509.Certificate, err error) {
	store, err := openJKS(data, password)
	if err != nil {
		return nil, err
	}
	for _, alias := range sorted(store.Aliases()) {
		if !store.IsTrustedCertificateEntry(alias) {
			continue
		}
		entry, err := store.GetTrustedCertificateEntry(alias)
		if err != nil {
			return nil, fmt.Errorf("certificate %s: %w", alias, err)
		}
		got, err := jksCertificates([]keystore.Certificate{entry.Certificate})
		if err != nil {
			return nil, fmt.Errorf("certificate %s: %w", alias, err)
		}
		certs = append(certs, got...)
	}
	return certs, nil
}

func jksCertificates(entries []keystore.Certificate) (certs []*x509.Certificate, err error) {
	for _, e := range entries {
		c, err := x509.ParseCertificate(e.Content)
		if err != nil {
			return nil, err
		}
		certs = append(certs, c)
	}
	return certs, nil
}

func sorted(names []string) []string {
	slices.SortFunc(names, strings.Compare)
	return names
}
