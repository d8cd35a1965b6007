package devca

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"software.sslmate.com/src/go-pkcs12"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
)

// missing reports whether a file does not exist.
func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// readPair reads a certificate and its key.
func readPair(certFile, keyFile string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s and %s: %w", certFile, keyFile, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, fmt.Errorf("%s has a key of type %T; leased certs uses ECDSA keys only", keyFile, pair.PrivateKey)
	}
	return pair.Leaf, key, nil
}

// readCert reads a certificate without its key. It returns nil if the file has none.
func readCert(path string) *x509.Certificate {
	text, _ := os.ReadFile(path)
	block, _ := pem.Decode(text)
	if block == nil {
		return nil
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return cert
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return write(path, "PRIVATE KEY", der, 0o600)
}

func writeCert(path string, der []byte) error { return write(path, "CERTIFICATE", der, 0o644) }

// write writes a file with a PEM block.
func write(path, kind string, der []byte, mode os.FileMode) error {
	return settings.Replace(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}

// PKCS12 writes a file that browsers and key stores import: the key and the certificate of a client, and the CA. It
// returns the path and the random password of the file.
func (c *CA) PKCS12(i Issued) (path, password string, err error) {
	cert, key, err := readPair(i.CertFile, i.KeyFile)
	if err != nil {
		return "", "", err
	}
	path, password = filepath.Join(filepath.Dir(i.KeyFile), i.Name+".p12"), rand.Text()
	data, err := pkcs12.Modern.Encode(key, cert, []*x509.Certificate{c.cert}, password)
	if err != nil {
		return "", "", fmt.Errorf("encode %s: %w", path, err)
	}
	return path, password, settings.Replace(path, data, 0o600)
}
