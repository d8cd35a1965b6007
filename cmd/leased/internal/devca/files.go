package devca

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"software.sslmate.com/src/go-pkcs12"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
)

const (
	certBlock = "CERTIFICATE"
	keyBlock  = "PRIVATE KEY"
)

func readBlock(path, kind string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%s does not start with a PEM block %q", path, kind)
	}
	return block.Bytes, nil
}

func readCert(path string) (*x509.Certificate, error) {
	der, err := readBlock(path, certBlock)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return cert, nil
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	der, err := readBlock(path, keyBlock)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	own, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s has a key of type %T; leased certs uses ECDSA keys only", path, key)
	}
	return own, nil
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return write(path, keyBlock, der, 0o600)
}

func writeCert(path string, der []byte) error { return write(path, certBlock, der, 0o644) }

// write writes a file with a PEM block.
func write(path, kind string, der []byte, mode os.FileMode) error {
	return settings.Replace(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}

// PKCS12 writes a file that browsers and key stores import: the key and the certificate of a client, and the CA. It
// returns the path and the random password of the file.
func (c *CA) PKCS12(i Issued) (path, password string, err error) {
	key, err := readKey(i.KeyFile)
	if err != nil {
		return "", "", err
	}
	cert, err := readCert(i.CertFile)
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
