package devca

import (
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"path/filepath"

	"software.sslmate.com/src/go-pkcs12"
)

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
	return path, password, replace(path, data, 0o600)
}
